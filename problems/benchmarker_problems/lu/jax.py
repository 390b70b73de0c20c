"""LU in JAX: LAPACK's factorisation on a CPU, the vendor's on a GPU."""

from collections.abc import Mapping
from itertools import cycle

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.linalg import lu_factor, solve_triangular

from benchmarker import PRECISIONS, Case, Data, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.jax import DTYPES, JaxFramework
from benchmarker_problems.lu import REFINEMENTS, Lu, verify

Factors = tuple[Array, Array]
Result = tuple[Array, Array]


@hookimpl
def describe_workload() -> Support:
    """Return the types of LAPACK; there is nothing to refine in fp32."""
    return Support({"inference": ("fp64", "fp32")}, exclusions=({"factor": "fp32", "precision": "fp32"},))


def factored(a_NN: Array) -> Factors:
    """Return the factors and the order of the rows; JAX derives it from the pivots in a loop, once for all solves."""
    with jax.named_scope("factor"):
        factors_NN, pivots_N = lu_factor(a_NN)
    return factors_NN, jax.lax.linalg.lu_pivots_to_permutation(pivots_N, len(a_NN))


def solved(factors: Factors, b_N: Array) -> Array:
    """Return the solution from the factors, in their type."""
    factors_NN, order_N = factors
    with jax.named_scope("solve"):
        y_N = solve_triangular(factors_NN, b_N[order_N].astype(factors_NN.dtype), lower=True, unit_diagonal=True)
        return solve_triangular(factors_NN, y_N)


def solve(a_NN: Array, b_N: Array) -> Array:
    """Return the solution, factored in the type of A."""
    return solved(factored(a_NN), b_N)


def solve_refined(a_NN: Array, b_N: Array) -> Array:
    """Return the solution, factored in fp32 and refined."""
    factors = factored(a_NN.astype(jnp.float32))
    x_N = solved(factors, b_N).astype(b_N.dtype)
    for number in range(REFINEMENTS):
        with jax.named_scope(f"refinement_{number}"):
            with jax.named_scope("residual"):
                residual_N = b_N - a_NN @ x_N
            x_N += solved(factors, residual_N)
    return x_N


@hookimpl
def build_workload(framework: JaxFramework, case: Case, problem: Lu, data: Data) -> Workload:
    """Build a step: factor A, and solve for one right-hand side."""
    dtype = DTYPES[PRECISIONS[case.precision].parameter]
    a_NN = framework.put(data.weights["a"], dtype)
    batches = cycle([framework.put(batch["b"], dtype) for batch in data.batches])
    function = jax.jit(solve if problem.factor == "same" else solve_refined)

    def step() -> Result:
        b_N = next(batches)
        return function(a_NN, b_N), b_N

    def outputs(result: Result) -> Mapping[str, np.ndarray]:
        return {"x": np.asarray(result[0], np.float64)}

    return Workload(step, outputs, verify=lambda result: verify(data.weights["a"], *map(np.asarray, result)))
