"""GEMM in JAX."""

from collections.abc import Callable, Mapping
from itertools import cycle

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from benchmarker import FLOATS, PRECISIONS, Case, Data, Mode, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.jax import DTYPES, JaxFramework
from benchmarker_problems.gemm import INPUTS, NOT_WIDE, OUTPUTS, Gemm, transposed


@hookimpl
def describe_workload() -> Support:
    """Return the types of each mode; int8 has no gradient."""
    return Support({"inference": (*FLOATS, "int8"), "forward_backward": FLOATS}, exclusions=NOT_WIDE)


def step_function(problem: Gemm, precision: str, mode: Mode) -> Callable[..., tuple[Array, ...]]:
    """Return the function from (a, b) to (c,), or with backward from (a, b, dc) to (c, da, db); int8 sums in int32."""
    sum_type = jnp.int32 if precision == "int8" else None

    def product(a: Array, b: Array) -> Array:
        with jax.named_scope("gemm"):
            a_MK, b_KN = transposed(a, problem.transpose_a), transposed(b, problem.transpose_b)
            return jnp.matmul(a_MK, b_KN, preferred_element_type=sum_type)

    def forward(a: Array, b: Array) -> tuple[Array, ...]:
        return (product(a, b),)

    def forward_backward(a: Array, b: Array, dc: Array) -> tuple[Array, ...]:
        c_MN, pullback = jax.vjp(product, a, b)
        return (c_MN, *pullback(dc))

    return forward if mode == "inference" else forward_backward


@hookimpl
def build_workload(framework: JaxFramework, case: Case, problem: Gemm, data: Data) -> Workload:
    """Build a step: one product; in `forward_backward` also the gradients of A and B, by `vjp`."""
    dtype = DTYPES[PRECISIONS[case.precision].parameter]
    function = jax.jit(step_function(problem, case.precision, case.mode))
    batches = cycle([tuple(framework.put(batch[name], dtype) for name in INPUTS[case.mode]) for batch in data.batches])

    def step() -> tuple[Array, ...]:
        return function(*next(batches))

    def outputs(result: tuple[Array, ...]) -> Mapping[str, np.ndarray]:
        return {name: np.asarray(value, np.float64) for name, value in zip(OUTPUTS, result, strict=False)}

    return Workload(step, outputs)
