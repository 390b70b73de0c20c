"""CG in JAX: the iterations are a loop on the device."""

from collections.abc import Callable, Mapping
from itertools import cycle

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from benchmarker import PRECISIONS, Case, Data, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.jax import DTYPES, JaxFramework
from benchmarker_problems.cg import TINY, Cg
from benchmarker_problems.spmv.jax import Matrix, put_matrix

State = tuple[Array, Array, Array, Array]


@hookimpl
def describe_workload() -> Support:
    """Return the types of scientific computing, in every format of the matrix."""
    return Support({"inference": ("fp64", "fp32")})


def solver(
    multiply: Callable[[Matrix, Array], Array], iterations: int
) -> Callable[[Matrix, Array], tuple[Array, Array]]:
    """Return the function from the matrix and b to x and the norm of the residual."""

    def solve(matrix: Matrix, b_N: Array) -> tuple[Array, Array]:
        def iterate(_: int, state: State) -> State:
            x_N, r_N, p_N, rho = state
            q_N = multiply(matrix, p_N)
            with jax.named_scope("dot_pq"):
                alpha = rho / (p_N @ q_N + TINY)
            with jax.named_scope("axpy_xr"):
                x_N += alpha * p_N
                r_N -= alpha * q_N
            before = rho
            with jax.named_scope("dot_rr"):
                rho = r_N @ r_N
            with jax.named_scope("axpy_p"):
                p_N = r_N + rho / (before + TINY) * p_N
            return x_N, r_N, p_N, rho

        with jax.named_scope("dot_bb"):
            rho = b_N @ b_N
        start = jnp.zeros_like(b_N), b_N, b_N, rho
        x_N, _, _, rho = jax.lax.fori_loop(0, iterations, iterate, start)
        return x_N, jnp.sqrt(rho)

    return solve


@hookimpl
def build_workload(framework: JaxFramework, case: Case, problem: Cg, data: Data) -> Workload:
    """Build a step: the iterations for one right-hand side."""
    dtype = DTYPES[PRECISIONS[case.precision].parameter]
    matrix, multiply = put_matrix(framework, data.weights, problem.format, dtype)
    batches = cycle([framework.put(batch["b"], dtype) for batch in data.batches])
    function = jax.jit(solver(multiply, problem.iterations))

    def step() -> tuple[Array, Array]:
        return function(matrix, next(batches))

    def outputs(result: tuple[Array, Array]) -> Mapping[str, np.ndarray]:
        x_N, norm = result
        return {"x": np.asarray(x_N, np.float64), "residual_norm": np.asarray(norm, np.float64)}

    return Workload(step, outputs)
