"""Layers in JAX that Flax does not have.

Shapes: B batch, T sequence, H heads, D head dimension, V vocabulary; of images, H height, W width, C channels, N
patches, P numbers of a patch.
"""

from typing import cast

import jax
import jax.numpy as jnp
import optax
from jax import Array


def rope(x_BTHD: Array, cos_Td: Array, sin_Td: Array) -> Array:
    """Rotate the pairs (i, i + D/2) of each head by the angles of the position."""
    cos_T1d, sin_T1d = (table[:, None].astype(x_BTHD.dtype) for table in (cos_Td, sin_Td))
    first, second = jnp.split(x_BTHD, 2, axis=-1)
    return jnp.concatenate([first * cos_T1d - second * sin_T1d, second * cos_T1d + first * sin_T1d], axis=-1)


def patches(images_BHWC: Array, size: int) -> Array:
    """Return the patches from left to right and from top to bottom, [B, N, P]; their pixels stay in this order."""
    batch_size, height, width, channels = images_BHWC.shape
    tiles = images_BHWC.reshape(batch_size, height // size, size, width // size, size, channels).swapaxes(2, 3)
    return tiles.reshape(batch_size, -1, size * size * channels)


def swiglu(gate_up: Array) -> Array:
    """Return silu(gate)·up of the two halves of the last axis."""
    gate, up = jnp.split(gate_up, 2, axis=-1)
    return jax.nn.silu(gate) * up


def cross_entropy(logits_V: Array, targets: Array) -> Array:
    """Return the mean cross-entropy, in fp32 or fp64."""
    with jax.named_scope("loss"):
        logits_V = logits_V.astype(jnp.promote_types(logits_V.dtype, jnp.float32))
        return cast("Array", optax.softmax_cross_entropy_with_integer_labels(logits_V, targets).mean())
