"""Layers in JAX that Flax does not have.

Shapes: B batch, T sequence, C width of the model, F width within the MLP, E queries, keys and values, H heads, D head
dimension, V vocabulary; of images, H height, W width, C channels, N patches, P numbers of a patch.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax import Array

from benchmarker_problems.attention.jax import Attend, Kernel, attend
from benchmarker_problems.gemm.jax import product_by_output
from benchmarker_problems.layers import Impl


class DenseByOutput(nn.Module):
    """A linear layer whose kernel is stored by output, as [O, I]."""

    features: int
    dtype: Any
    use_bias: bool = True

    @nn.compact
    def __call__(self, x_I: Array) -> Array:
        """Return x·kernelᵀ + bias, [..., O]."""
        kernel_OI = self.param("kernel", nn.initializers.zeros, (self.features, x_I.shape[-1]))
        y_O = product_by_output(x_I.astype(self.dtype), kernel_OI.astype(self.dtype))
        if not self.use_bias:
            return y_O
        bias_O = self.param("bias", nn.initializers.zeros, (self.features,))
        return y_O + bias_O.astype(self.dtype)


class TransformerBlock(nn.Module):
    """Attention and MLP of GPT-2's kind, each with a residual connection.

    LayerNorm with `eps` comes before them, or after the addition (`post_norm`). GELU is exact, or approximate
    (`tanh_gelu`). `linear` makes the linear layers. On several devices along an `axis`, `n_head` and `d_ff` are the
    share of each, and the sums are taken over all of them.
    """

    n_head: int
    d_ff: int
    eps: float
    impl: Impl
    kernel: Kernel
    dtype: Any
    causal: bool = False
    tanh_gelu: bool = False
    post_norm: bool = False
    linear: Callable[..., nn.Module] = nn.Dense
    axis: str | None = None

    @nn.compact
    def __call__(self, x_BTC: Array, attention: Attend | None = None) -> Array:
        """Apply the block, with another attention than that of whole sequences if it is given."""
        d_model = x_BTC.shape[-1]
        linear = partial(self.linear, dtype=self.dtype)
        head_dim = d_model // (self.n_head * devices_along(self.axis))
        ln_1, ln_2 = (nn.LayerNorm(epsilon=self.eps, name=name) for name in ("ln_1", "ln_2"))

        h_BTC = x_BTC if self.post_norm else ln_1(x_BTC)
        qkv_BTE = linear(3 * self.n_head * head_dim, name="attn_qkv")(h_BTC)
        q_BTHD, k_BTHD, v_BTHD = (
            part.reshape(*part.shape[:2], self.n_head, -1) for part in jnp.split(qkv_BTE, 3, axis=-1)
        )
        attention = attention or partial(attend, impl=self.impl, causal=self.causal, kernel=self.kernel)
        heads_BTHD = attention(q_BTHD, k_BTHD, v_BTHD)
        attended_BTC = summing(linear, self.axis)(d_model, name="attn_proj")(heads_BTHD.reshape(*x_BTC.shape[:2], -1))
        with jax.named_scope("attn_proj"):
            x_BTC = x_BTC + attended_BTC
        if self.post_norm:
            x_BTC = ln_1(x_BTC)

        h_BTC = x_BTC if self.post_norm else ln_2(x_BTC)
        inner_BTF = linear(self.d_ff, name="mlp_fc")(h_BTC)
        with jax.named_scope("mlp_gelu"):
            inner_BTF = nn.gelu(inner_BTF, approximate=self.tanh_gelu)
        mlp_BTC = summing(linear, self.axis)(d_model, name="mlp_proj")(inner_BTF)
        with jax.named_scope("mlp_proj"):
            x_BTC = x_BTC + mlp_BTC
        return ln_2(x_BTC) if self.post_norm else x_BTC


def devices_along(axis: str | None) -> int:
    """Return the number of devices that compute together; one if there is no axis."""
    return jax.lax.axis_size(axis) if axis else 1


def summing(linear: Callable[..., nn.Module], axis: str | None) -> Callable[..., nn.Module]:
    """Return the linear layer; devices along an axis divide its inputs, and sum their products before the bias."""

    def summed(*args: Any, **options: Any) -> Array:
        return jax.lax.psum(jax.lax.dot_general(*args, **options), axis)

    return partial(linear, dot_general=summed) if axis else linear


def rope(x_BTHD: Array, cos_Td: Array, sin_Td: Array) -> Array:
    """Rotate the pairs (i, i + D/2) of each head by the angles of the position."""
    cos_T1d, sin_T1d = (table[..., None, :].astype(x_BTHD.dtype) for table in (cos_Td, sin_Td))
    first, second = jnp.split(x_BTHD, 2, axis=-1)
    return jnp.concatenate([first * cos_T1d - second * sin_T1d, second * cos_T1d + first * sin_T1d], axis=-1)


def rows_from(table_SN: Array, position: Array | int, count: int) -> Array:
    """Return `count` rows of a table from a position on, [T, N]; or from that of each sequence [B] on, [B, T, N]."""
    if jnp.ndim(position) == 0:
        return jax.lax.dynamic_slice_in_dim(table_SN, position, count)
    return table_SN[jnp.asarray(position)[:, None] + jnp.arange(count)]


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
