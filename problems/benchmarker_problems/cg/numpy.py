"""CG in SciPy: its sparse product, and BLAS for the rest."""

from itertools import cycle

import numpy as np
from scipy.linalg import get_blas_funcs

from benchmarker import Data, Workload, hookimpl
from benchmarker_problems.cg import TINY, CgParams
from benchmarker_problems.spmv.numpy import describe_workload, make_matrix

__all__ = ["build_workload", "describe_workload"]


@hookimpl
def build_workload(params: CgParams, data: Data) -> Workload:
    """Build a step: the iterations for one right-hand side."""
    matrix = make_matrix(data.weights)
    batches = cycle([batch["b"] for batch in data.batches])
    (axpy,) = get_blas_funcs(["axpy"], [data.batches[0]["b"]])

    def step() -> tuple[np.ndarray, np.ndarray]:
        b_N = next(batches)
        x_N, r_N, p_N = np.zeros_like(b_N), b_N.copy(), b_N.copy()
        rho = r_N @ r_N
        for _ in range(params.iterations):
            q_N = matrix @ p_N
            alpha = rho / (p_N @ q_N + TINY)
            axpy(p_N, x_N, a=alpha)
            axpy(q_N, r_N, a=-alpha)
            before, rho = rho, r_N @ r_N
            p_N *= rho / (before + TINY)
            p_N += r_N
        return x_N, np.sqrt(rho)

    return Workload(step, lambda result: {"x": result[0], "residual_norm": result[1]})
