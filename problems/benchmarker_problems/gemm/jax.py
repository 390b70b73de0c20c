"""GEMM in JAX."""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import cycle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from benchmarker import FLOATS, PRECISIONS, Arrays, Case, Data, Mode, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.jax import DTYPES, JaxFramework
from benchmarker_problems.fp8 import SCALED
from benchmarker_problems.fp8 import jax as fp8
from benchmarker_problems.gemm import INPUTS, OUTPUTS, SLICED, Gemm, transposed
from benchmarker_problems.gemm import slices as by_slices


@hookimpl
def describe_workload() -> Support:
    """Return the types of each mode; integers, fp8 and products by slices have no gradient."""
    return Support({"inference": (*FLOATS, *SCALED, "int8", *SLICED), "forward_backward": FLOATS})


FEW_ROWS = 16
"""Up to so many rows, XLA's CPU compiler multiplies faster if the weights, stored by output, are the left operand."""


def product_by_output(x_I: Array, weights_OI: Array) -> Array:
    """Return x·weightsᵀ, [..., O]."""
    rows = x_I.size // x_I.shape[-1]
    if rows > FEW_ROWS:
        return jnp.einsum("...I,OI->...O", x_I, weights_OI)
    return (weights_OI @ x_I.reshape(rows, -1).T).T.reshape(*x_I.shape[:-1], -1)


def _int8_product(a_MK: Array, b_KN: Array) -> Array:
    return jnp.matmul(a_MK, b_KN, preferred_element_type=jnp.int32)


ARITHMETIC = by_slices.Arithmetic(jnp, lambda x: x.astype(jnp.int8), lambda x: x.astype(jnp.float64), _int8_product)


def _multiply(precision: str) -> Callable[[Any, Any], Array]:
    """Return the function from A and B as they are stored in a precision to their product; int8 sums in int32."""
    types = PRECISIONS[precision]
    if types.slices:
        return partial(by_slices.product, slices=types.slices, of=ARITHMETIC)
    return fp8.product if types.scale else _int8_product if precision == "int8" else jnp.matmul


def step_function(problem: Gemm, precision: str, mode: Mode) -> Callable[..., tuple[Array, ...]]:
    """Return the function from (a, b) to (c,), or with backward from (a, b, dc) to (c, da, db)."""
    multiply = _multiply(precision)

    def product(a: Any, b: Any) -> Array:
        with jax.named_scope("gemm"):
            if problem.linear:
                return product_by_output(a, b)
            return multiply(transposed(a, problem.transpose_a), transposed(b, problem.transpose_b))

    def forward(a: Any, b: Any) -> tuple[Array, ...]:
        return (product(a, b),)

    def forward_backward(a: Array, b: Array, dc: Array) -> tuple[Array, ...]:
        c_MN, pullback = jax.vjp(product, a, b)
        return (c_MN, *pullback(dc))

    return forward if mode == "inference" else forward_backward


@hookimpl
def build_workload(framework: JaxFramework, case: Case, problem: Gemm, data: Data) -> Workload:
    """Build a step: one product; in `forward_backward` also the gradients of A and B, by `vjp`."""
    types = PRECISIONS[case.precision]
    dtype = DTYPES[types.parameter]
    function = jax.jit(step_function(problem, case.precision, case.mode))

    def put(batch: Arrays) -> tuple[Any, ...]:
        if types.scale:
            axes = problem.summed_axes.items()
            return tuple(fp8.scaled(framework.put(batch[name]), types, dtype, axis) for name, axis in axes)
        return tuple(framework.put(batch[name], dtype) for name in INPUTS[case.mode])

    batches = cycle([put(batch) for batch in data.batches])

    def step() -> tuple[Array, ...]:
        return function(*next(batches))

    def outputs(result: tuple[Array, ...]) -> Mapping[str, np.ndarray]:
        return {name: np.asarray(value, np.float64) for name, value in zip(OUTPUTS, result, strict=False)}

    return Workload(step, outputs)
