"""Launches in PyTorch: each kernel is an addition; with `--compile`, a call of a compiled function."""

import numpy as np
from torch import Tensor

from benchmarker import PRECISIONS, Case, Data, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.torch import DTYPES, TorchFramework
from benchmarker_problems.launch import PRECISIONS_DONE, Launch
from benchmarker_problems.launch.steps import workload


@hookimpl
def describe_workload() -> Support:
    """Return the precisions."""
    return Support(PRECISIONS_DONE)


def to_host(x: Tensor) -> np.ndarray:
    """Return a copy in float64."""
    copy: np.ndarray = x.cpu().double().numpy()
    return copy


@hookimpl
def build_workload(framework: TorchFramework, case: Case, problem: Launch, data: Data) -> Workload:
    """Build a step: additions, each of them a kernel, and a wait for the last result."""
    dtype = DTYPES[PRECISIONS[case.precision].parameter]
    one = framework.put(np.ones(1), dtype)  # a number of Python would be converted in each call

    def add_one(x: Tensor) -> Tensor:
        return x + one

    return workload(
        problem.kernels,
        data,
        put=lambda x: framework.put(x, dtype),
        kernel=framework.compiled(add_one, case.compile),
        synchronize=framework.synchronize,
        to_host=to_host,
    )
