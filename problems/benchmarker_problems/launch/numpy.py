"""Launches in NumPy: each kernel is an addition, done when the call returns."""

import numpy as np

from benchmarker import Data, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.numpy import NumpyFramework
from benchmarker_problems.launch import PRECISIONS_DONE, Launch
from benchmarker_problems.launch.steps import workload


@hookimpl
def describe_workload() -> Support:
    """Return the precisions."""
    return Support(PRECISIONS_DONE)


@hookimpl
def build_workload(framework: NumpyFramework, problem: Launch, data: Data) -> Workload:
    """Build a step: additions, one after the other."""
    one = np.ones_like(data.batches[0]["x"])  # a number of Python would be converted in each call
    return workload(
        problem.kernels,
        data,
        put=np.copy,
        kernel=lambda x: x + one,
        synchronize=framework.synchronize,
        to_host=lambda x: x.astype(np.float64),
    )
