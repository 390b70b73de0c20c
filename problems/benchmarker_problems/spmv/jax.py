"""SpMV in JAX, and the matrix for other problems."""

from collections.abc import Callable, Mapping
from itertools import cycle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from benchmarker import PRECISIONS, Case, Data, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.jax import DTYPES, JaxFramework
from benchmarker_problems.spmv import Format, Spmv, ell_matrix

Matrix = tuple[Array, ...]


@hookimpl
def describe_workload() -> Support:
    """Return the types of scientific computing, in every format."""
    return Support({"inference": ("fp64", "fp32")})


def put_matrix(
    framework: JaxFramework, weights: Mapping[str, np.ndarray], form: Format, dtype: Any
) -> tuple[Matrix, Callable[[Matrix, Array], Array]]:
    """Return the matrix on the device, and the function from it and x to A·x; ELL is the faster.

    JAX's own BCSR takes several times as long as either on a CPU: it derives the rows of the entries in each product.
    """
    if form == "csr":
        rows_E = np.repeat(np.arange(len(weights["row_starts"]) - 1, dtype=np.int32), np.diff(weights["row_starts"]))
        return (
            framework.put(weights["values"], dtype),
            framework.put(weights["columns"]),
            framework.put(rows_E),
        ), csr_product
    values_KN, columns_KN = ell_matrix(weights)
    return (framework.put(values_KN, dtype), framework.put(columns_KN)), ell_product


def csr_product(matrix: Matrix, x_N: Array) -> Array:
    """Return A·x: the products of all entries, summed over each row."""
    values_E, columns_E, rows_E = matrix
    with jax.named_scope("spmv"):
        products_E = values_E * x_N.at[columns_E].get(mode="promise_in_bounds", wrap_negative_indices=False)
        return jax.ops.segment_sum(products_E, rows_E, len(x_N), indices_are_sorted=True, mode="promise_in_bounds")


def ell_product(matrix: Matrix, x_N: Array) -> Array:
    """Return A·x: the sum over the entries of each row, which XLA computes in one pass over the rows."""
    values_KN, columns_KN = matrix
    with jax.named_scope("spmv"):
        y_N = jnp.zeros_like(x_N)
        for k in range(len(values_KN)):
            y_N += values_KN[k] * x_N.at[columns_KN[k]].get(mode="promise_in_bounds", wrap_negative_indices=False)
        return y_N


@hookimpl
def build_workload(framework: JaxFramework, case: Case, problem: Spmv, data: Data) -> Workload:
    """Build a step: one product."""
    dtype = DTYPES[PRECISIONS[case.precision].parameter]
    matrix, multiply = put_matrix(framework, data.weights, problem.format, dtype)
    batches = cycle([framework.put(batch["x"], dtype) for batch in data.batches])
    function = jax.jit(multiply)

    def step() -> Array:
        return function(matrix, next(batches))

    return Workload(step, lambda y_N: {"y": np.asarray(y_N, np.float64)})
