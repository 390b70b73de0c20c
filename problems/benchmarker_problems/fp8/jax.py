"""Products of fp8 with scales in JAX."""

from typing import Any

import jax.numpy as jnp
from jax import Array

from benchmarker import Precision
from benchmarker_problems.fp8 import FORMATS, scale_axes

Scaled = tuple[Array, Array]
"""Numbers [..., rows, columns], and their scales, which broadcast."""


def scaled(values: Array, types: Precision, dtype: Any, axis: int) -> Scaled:
    """Return the numbers that stand for values in fp32, and their scales, as `fp8.scaled` does."""
    axes = scale_axes(types, axis)
    largest = jnp.abs(values).max(axes, keepdims=True)
    scale = jnp.where(largest == 0, 1, largest * (1 / FORMATS[types.parameter].largest))
    return (values / scale).astype(dtype), scale


def product(a_MK: Scaled, b_KN: Scaled) -> Array:
    """Return the product in fp32 of numbers, times both scales."""
    return jnp.matmul(a_MK[0], b_KN[0], preferred_element_type=jnp.float32) * a_MK[1] * b_KN[1]
