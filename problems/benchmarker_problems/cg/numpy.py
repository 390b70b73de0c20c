"""CG in SciPy: its sparse product, and its BLAS for the rest.

NumPy's own BLAS is left alone (no `@` of vectors): both have a pool of threads, which wait for work by spinning, so
that calls of one and of the other by turns take the cores from each other.
"""

import numpy as np
from scipy.linalg import get_blas_funcs

from benchmarker import Arrays, Case, Data, Mode, Workload, hookimpl
from benchmarker_problems.cg import TINY, Cg
from benchmarker_problems.spmv.numpy import describe_workload, make_matrix
from benchmarker_problems.steps.numpy import workload

__all__ = ["build_workload", "describe_workload"]


@hookimpl
def build_workload(case: Case, problem: Cg, data: Data) -> Workload:
    """Build a step: the iterations for one right-hand side."""
    matrix = make_matrix(data.weights)
    dot, axpy, scal = get_blas_funcs(["dot", "axpy", "scal"], [data.batches[0]["b"]])

    def step(_: Arrays, batch: Arrays, __: Mode) -> Arrays:
        b_N = batch["b"]
        x_N, r_N, p_N = np.zeros_like(b_N), b_N.copy(), b_N.copy()
        rho = dot(r_N, r_N)
        for _number in range(problem.iterations):
            q_N = matrix @ p_N
            alpha = rho / (dot(p_N, q_N) + TINY)
            axpy(p_N, x_N, a=alpha)
            axpy(q_N, r_N, a=-alpha)
            before, rho = rho, dot(r_N, r_N)
            scal(rho / (before + TINY), p_N)
            axpy(r_N, p_N)
        return {"x": x_N, "residual_norm": np.sqrt(rho)}

    return workload(case, data, step)
