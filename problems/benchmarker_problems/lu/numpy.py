"""LU in SciPy, on its LAPACK and its BLAS; calls of NumPy's BLAS between them would take the cores from its threads."""

from itertools import cycle

import numpy as np
from scipy.linalg import get_blas_funcs, lu_factor, lu_solve

from benchmarker import Data, Support, Workload, hookimpl
from benchmarker_problems.lu import REFINEMENTS, Lu, verify

Result = tuple[np.ndarray, np.ndarray]


@hookimpl
def describe_workload() -> Support:
    """Return the types of LAPACK; there is nothing to refine in fp32."""
    return Support({"inference": ("fp64", "fp32")}, exclusions=({"factor": "fp32", "precision": "fp32"},))


@hookimpl
def build_workload(problem: Lu, data: Data) -> Workload:
    """Build a step: factor A, which lies in memory by columns as LAPACK wants it, and solve for one right-hand side."""
    a_NN = np.asfortranarray(data.weights["a"])
    batches = cycle([batch["b"] for batch in data.batches])
    refined = problem.factor == "fp32"
    gemv = get_blas_funcs("gemv", [a_NN])

    def step() -> Result:
        b_N = next(batches)
        factors = lu_factor(a_NN.astype(np.float32) if refined else a_NN, overwrite_a=refined, check_finite=False)
        x_N = lu_solve(factors, b_N.astype(factors[0].dtype), check_finite=False).astype(b_N.dtype)
        for _ in range(REFINEMENTS if refined else 0):
            residual_N = gemv(-1.0, a_NN, x_N, beta=1.0, y=b_N)
            x_N += lu_solve(factors, residual_N.astype(np.float32), overwrite_b=True, check_finite=False)
        return x_N, b_N

    return Workload(step, lambda result: {"x": result[0]}, verify=lambda result: verify(data.weights["a"], *result))
