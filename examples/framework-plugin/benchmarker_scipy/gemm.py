"""GEMM in SciPy: `sgemm` and `dgemm` of its BLAS."""

from collections.abc import Mapping
from itertools import cycle

import numpy as np
from scipy.linalg import get_blas_funcs

from benchmarker import Data, Support, Workload, hookimpl
from benchmarker_problems.gemm import GemmParams


@hookimpl
def describe_workload() -> Support:
    """The types that BLAS has; a gradient would have to be written out."""
    return Support({"inference": ("fp64", "fp32")})


@hookimpl
def build_workload(params: GemmParams, data: Data) -> Workload:
    """A step is one call of BLAS for each product of a batch: Cᵀ = Bᵀ·Aᵀ.

    BLAS wants columns together, NumPy's arrays have rows together: their transposed views are what BLAS wants,
    so nothing is copied.
    """
    gemm = get_blas_funcs("gemm", dtype=data.batches[0]["a"].dtype)
    batches = cycle([list(zip(_views(batch["b"]), _views(batch["a"]), strict=True)) for batch in data.batches])

    def step() -> list[np.ndarray]:
        return [
            gemm(1.0, b_t, a_t, trans_a=params.transpose_b, trans_b=params.transpose_a) for b_t, a_t in next(batches)
        ]

    def outputs(products: list[np.ndarray]) -> Mapping[str, np.ndarray]:
        c = [c_NM.T for c_NM in products]
        return {"c": c[0] if params.batch_size == 1 else np.stack(c)}

    return Workload(step, outputs)


def _views(matrices: np.ndarray) -> list[np.ndarray]:
    """The transposed view of each matrix in an array of one or several."""
    return [matrix.T for matrix in matrices.reshape(-1, *matrices.shape[-2:])]
