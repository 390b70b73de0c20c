"""LU in JAX: LAPACK's factorisation on a CPU, the vendor's on a GPU."""

from collections.abc import Mapping
from itertools import cycle

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.linalg import lu_factor, lu_solve

from benchmarker import PRECISIONS, Case, Data, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.jax import DTYPES, JaxFramework
from benchmarker_problems.lu import REFINEMENTS, LuParams, verify

Result = tuple[Array, Array]


@hookimpl
def describe_workload() -> Support:
    """Return the types of LAPACK; there is nothing to refine in fp32."""
    return Support({"inference": ("fp64", "fp32")}, exclusions=({"factor": "fp32", "precision": "fp32"},))


def solve(a_NN: Array, b_N: Array) -> Array:
    """Return the solution, factored in the type of A."""
    with jax.named_scope("factor"):
        factors = lu_factor(a_NN)
    with jax.named_scope("solve"):
        return lu_solve(factors, b_N)


def solve_refined(a_NN: Array, b_N: Array) -> Array:
    """Return the solution, factored in fp32 and refined."""
    with jax.named_scope("factor"):
        factors = lu_factor(a_NN.astype(jnp.float32))
    x_N = jnp.zeros_like(b_N)
    for number in range(1 + REFINEMENTS):
        residual_N = b_N
        if number:
            with jax.named_scope("residual"):
                residual_N = b_N - a_NN @ x_N
        with jax.named_scope("solve"):
            x_N += lu_solve(factors, residual_N.astype(jnp.float32))
    return x_N


@hookimpl
def build_workload(framework: JaxFramework, case: Case, params: LuParams, data: Data) -> Workload:
    """Build a step: factor A, and solve for one right-hand side."""
    dtype = DTYPES[PRECISIONS[case.precision].parameter]
    a_NN = framework.put(data.weights["a"], dtype)
    batches = cycle([framework.put(batch["b"], dtype) for batch in data.batches])
    function = jax.jit(solve if params.factor == "same" else solve_refined)

    def step() -> Result:
        b_N = next(batches)
        return function(a_NN, b_N), b_N

    def outputs(result: Result) -> Mapping[str, np.ndarray]:
        return {"x": np.asarray(result[0], np.float64)}

    return Workload(step, outputs, verify=lambda result: verify(data.weights["a"], *map(np.asarray, result)))
