"""GEMM in SciPy: `sgemm` and `dgemm` of its BLAS."""

from collections.abc import Mapping
from itertools import cycle

import numpy as np
from scipy.linalg import get_blas_funcs

from benchmarker import Data, Support, Workload, hookimpl
from benchmarker_problems.gemm import Gemm


@hookimpl
def describe_workload() -> Support:
    """Return the types that BLAS supports; gradients are not implemented."""
    return Support({"inference": ("fp64", "fp32")})


@hookimpl
def build_workload(problem: Gemm, data: Data) -> Workload:
    """Build GEMM: a step calls BLAS once for each product of a batch, as Cᵀ = Bᵀ·Aᵀ.

    BLAS expects column-major matrices, and NumPy's arrays are row-major. The transposed views of the arrays are
    column-major, so nothing is copied.
    """
    gemm = get_blas_funcs("gemm", dtype=data.batches[0]["a"].dtype)
    batches = cycle([list(zip(_views(batch["b"]), _views(batch["a"]), strict=True)) for batch in data.batches])

    def step() -> list[np.ndarray]:
        return [
            gemm(1.0, b_t, a_t, trans_a=problem.transpose_b, trans_b=problem.transpose_a) for b_t, a_t in next(batches)
        ]

    def outputs(products: list[np.ndarray]) -> Mapping[str, np.ndarray]:
        c = [c_NM.T for c_NM in products]
        return {"c": c[0] if problem.batch_size == 1 else np.stack(c)}

    return Workload(step, outputs)


def _views(matrices: np.ndarray) -> list[np.ndarray]:
    """Return the transposed view of each matrix in an array of one or more matrices."""
    return [matrix.T for matrix in matrices.reshape(-1, *matrices.shape[-2:])]
