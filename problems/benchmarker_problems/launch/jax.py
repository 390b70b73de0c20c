"""Launches in JAX: each kernel is a call of a jitted function."""

import jax
import numpy as np
from jax import Array

from benchmarker import PRECISIONS, Case, Data, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.jax import DTYPES, JaxFramework
from benchmarker_problems.launch import PRECISIONS_DONE, Launch
from benchmarker_problems.launch.steps import workload


@hookimpl
def describe_workload() -> Support:
    """Return the precisions."""
    return Support(PRECISIONS_DONE)


@jax.jit
def add_one(x: Array) -> Array:
    """Return x + 1."""
    return x + 1


@hookimpl
def build_workload(framework: JaxFramework, case: Case, problem: Launch, data: Data) -> Workload:
    """Build a step: calls of the same program, and a wait for the last result."""
    dtype = DTYPES[PRECISIONS[case.precision].parameter]
    return workload(
        problem.kernels,
        data,
        put=lambda x: framework.put(x, dtype),
        kernel=add_one,
        synchronize=framework.synchronize,
        to_host=lambda x: np.asarray(x, np.float64),
    )
