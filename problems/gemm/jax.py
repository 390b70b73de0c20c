"""GEMM in JAX."""

from collections.abc import Mapping
from itertools import cycle

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from benchmarker import PRECISIONS, Case, Data, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.jax import DTYPES, JaxFramework
from benchmarker_problems.gemm import GemmParams, transposed


@hookimpl
def describe_workload() -> Support:
    """int8 has no gradient."""
    return Support(
        {
            "inference": ("fp64", "fp32", "tf32", "bf16", "fp16", "int8"),
            "forward_backward": ("fp64", "fp32", "tf32", "bf16", "fp16"),
        }
    )


@hookimpl
def build_workload(framework: JaxFramework, case: Case, params: GemmParams, data: Data) -> Workload:
    """A step is one product, summed in int32 for int8; forward and backward, `vjp` adds the gradients of A and B."""
    dtype = DTYPES[PRECISIONS[case.precision].parameter]
    sum_type = jnp.int32 if case.precision == "int8" else None
    batches = cycle(
        [{name: framework.put(value, dtype) for name, value in batch.items()} for batch in data.batches]
    )

    def product(a: Array, b: Array) -> Array:
        with jax.named_scope("gemm"):
            a_MK, b_KN = transposed(a, params.transpose_a), transposed(b, params.transpose_b)
            return jnp.matmul(a_MK, b_KN, preferred_element_type=sum_type)

    @jax.jit
    def forward(a: Array, b: Array, dc: Array) -> tuple[Array, ...]:
        return (product(a, b),)

    @jax.jit
    def forward_backward(a: Array, b: Array, dc: Array) -> tuple[Array, ...]:
        c_MN, pullback = jax.vjp(product, a, b)
        return (c_MN, *pullback(dc))

    function = forward_backward if case.mode == "forward_backward" else forward

    def step() -> tuple[Array, ...]:
        batch = next(batches)
        return function(batch["a"], batch["b"], batch["dc"])

    def outputs(result: tuple[Array, ...]) -> Mapping[str, np.ndarray]:
        return {
            name: np.asarray(value, np.float64)
            for name, value in zip(("c", "da", "db"), result, strict=False)
        }

    return Workload(step, outputs)
