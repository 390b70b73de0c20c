"""GEMM in NumPy: one call of its BLAS."""

import numpy as np

from benchmarker import Arrays, Case, Data, Mode, Support, Workload, hookimpl
from benchmarker_problems.gemm import Gemm, transposed
from benchmarker_problems.steps.numpy import DONE, workload


@hookimpl
def describe_workload() -> Support:
    """Return the types that BLAS supports."""
    return Support(DONE)


@hookimpl
def build_workload(case: Case, problem: Gemm, data: Data) -> Workload:
    """Build a step: one product; a transposed matrix is a view."""
    p = problem

    def step(_: Arrays, batch: Arrays, __: Mode) -> Arrays:
        return {"c": np.matmul(transposed(batch["a"], p.transpose_a), transposed(batch["b"], p.transpose_b))}

    return workload(case, data, step)
