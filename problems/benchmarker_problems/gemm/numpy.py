"""GEMM in NumPy: one call of its BLAS."""

from itertools import cycle

import numpy as np

from benchmarker import Data, Support, Workload, hookimpl
from benchmarker_problems.gemm import Gemm, transposed


@hookimpl
def describe_workload() -> Support:
    """Return the types that BLAS supports."""
    return Support({"inference": ("fp64", "fp32")})


@hookimpl
def build_workload(problem: Gemm, data: Data) -> Workload:
    """Build a step: one product; a transposed matrix is a view."""
    batches = cycle(
        [
            (transposed(batch["a"], problem.transpose_a), transposed(batch["b"], problem.transpose_b))
            for batch in data.batches
        ]
    )

    def step() -> np.ndarray:
        a_MK, b_KN = next(batches)
        c_MN: np.ndarray = np.matmul(a_MK, b_KN)
        return c_MN

    return Workload(step, lambda c_MN: {"c": c_MN})
