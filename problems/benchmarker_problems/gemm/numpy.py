"""GEMM in NumPy: one call of its BLAS, also for formats that it emulates."""

import numpy as np

from benchmarker import PRECISIONS, Arrays, Case, Data, Mode, Support, Workload, hookimpl
from benchmarker_problems import fp8
from benchmarker_problems.gemm import Gemm, transposed
from benchmarker_problems.steps.numpy import DONE, workload


@hookimpl
def describe_workload() -> Support:
    """Return the types that BLAS supports, and the formats that are emulated."""
    return Support({"inference": (*DONE["inference"], *fp8.EMULATED)})


@hookimpl
def build_workload(case: Case, problem: Gemm, data: Data) -> Workload:
    """Build a step: one product; a transposed matrix is a view."""
    p, types = problem, PRECISIONS[case.precision]

    def step(_: Arrays, batch: Arrays, __: Mode) -> Arrays:
        a_MK, b_KN = transposed(batch["a"], p.transpose_a), transposed(batch["b"], p.transpose_b)
        return {"c": fp8.product(a_MK, b_KN, types) if types.is_emulated else np.matmul(a_MK, b_KN)}

    return workload(case, data, step)
