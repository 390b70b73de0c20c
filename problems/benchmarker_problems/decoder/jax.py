"""A decoder like Llama in JAX with Flax. Shapes: B batch, T sequence, C width of the model, V vocabulary.

In mixed precision, fp32 weights are cast for each product. In 16-bit types RMSNorm and softmax accumulate in fp32, and
the loss is fp32. Flax creates a scope for each of its modules; the other scopes are set explicitly.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array

from benchmarker import Support
from benchmarker_problems.attention.jax import FUSED_EXCLUSIONS, Attend, Kernel, attend
from benchmarker_problems.decoder import RMS_NORM_EPS, Decoder
from benchmarker_problems.gemm.jax import product_by_output
from benchmarker_problems.generation.jax import NO_FUSED_CACHE
from benchmarker_problems.layers.jax import devices_along, rope, rows_from, summing
from benchmarker_problems.layers.reference import rope_tables
from benchmarker_problems.quantization.jax import dense
from benchmarker_problems.steps import DONE

SUPPORT = Support(DONE, exclusions=(*FUSED_EXCLUSIONS, *NO_FUSED_CACHE))
"""All precisions, except those that JAX's fused attention does not support."""

Mlp = Callable[..., Array]
"""From the normalised input and the residual [B, T, C], the parameters and the type of products; it makes modules.

One whose width several devices divide takes an `axis` too.
"""


class Block(nn.Module):
    """Attention and MLP, each on its normalised input and with a residual connection.

    With an `axis`, several devices divide the heads, and the MLP its width.
    """

    problem: Decoder
    mlp: Mlp
    dtype: Any
    kernel: Kernel
    axis: str | None = None

    @nn.compact
    def __call__(self, x_BTC: Array, tables: tuple[Array, Array], attention: Attend | None = None) -> Array:
        """Apply the block, with another attention than that of whole sequences if it is given."""
        p, (n_head, n_kv_head, _) = self.problem, (heads // devices_along(self.axis) for heads in self.problem.heads)
        linear = partial(dense(p), use_bias=False, dtype=self.dtype)
        rms_norm = partial(nn.RMSNorm, epsilon=RMS_NORM_EPS)

        h_BTC = rms_norm(name="norm_1")(x_BTC)
        qkv_BTE = linear((n_head + 2 * n_kv_head) * p.head_dim, name="attn_qkv")(h_BTC)
        qk_BTHD, v_BTKD = jnp.split(qkv_BTE.reshape(*x_BTC.shape[:2], -1, p.head_dim), [n_head + n_kv_head], axis=2)
        with jax.named_scope("rope"):
            q_BTHD, k_BTKD = jnp.split(rope(qk_BTHD, *tables), [n_head], axis=2)
        attention = attention or partial(attend, impl=p.impl, causal=True, kernel=self.kernel)
        heads_BTHD = attention(q_BTHD, k_BTKD, v_BTKD)
        attended_BTC = summing(linear, self.axis)(p.d_model, name="attn_proj")(heads_BTHD.reshape(*x_BTC.shape[:2], -1))
        with jax.named_scope("attn_proj"):
            x_BTC = x_BTC + attended_BTC
        return self.mlp(rms_norm(name="norm_2")(x_BTC), x_BTC, p, self.dtype)


class DecoderModel(nn.Module):
    """The whole model; with an `axis`, several devices divide each block."""

    problem: Decoder
    mlp: Mlp
    dtype: Any
    kernel: Kernel
    axis: str | None = None

    @nn.compact
    def __call__(
        self,
        tokens_BT: Array,
        position: Array | int = 0,
        attentions: Sequence[Attend] | None = None,
        last: Array | int = -1,
    ) -> Array:
        """Return the logits of every position, [B, T, V]; with the attention of each block, of the last, [B, V]."""
        p = self.problem
        wte_VC = self.param("wte", nn.initializers.normal(0.02), (p.vocab_size, p.d_model))
        cos_Td, sin_Td = map(jnp.asarray, rope_tables(p.seq_len, p.head_dim, p.rope_theta))
        with jax.named_scope("embed"):
            x_BTC = wte_VC[tokens_BT]
            if attentions:
                cos_Td, sin_Td = (rows_from(table, position, tokens_BT.shape[1]) for table in (cos_Td, sin_Td))
        block = nn.remat(Block) if p.recompute else Block
        for layer in range(p.n_layer):
            made = block(p, self.mlp, self.dtype, self.kernel, self.axis, name=f"h.{layer}")
            x_BTC = made(x_BTC, (cos_Td, sin_Td), attentions[layer] if attentions else None)
        if attentions:
            x_BTC = x_BTC[:, last]
        x_BTC = nn.RMSNorm(epsilon=RMS_NORM_EPS, name="norm_f")(x_BTC)
        if not p.tied_head:
            logits: Array = dense(p)(p.vocab_size, use_bias=False, dtype=self.dtype, name="lm_head")(x_BTC)
            return logits
        with jax.named_scope("lm_head"):
            return product_by_output(x_BTC.astype(self.dtype), wte_VC.astype(self.dtype))


def model_of(problem: Decoder, mlp: Mlp, dtype: Any, kernel: Kernel, axis: str | None = None) -> DecoderModel:
    """Return a model with products in `dtype`; with an `axis`, several devices divide each block."""
    return DecoderModel(problem, partial(mlp, axis=axis) if axis else mlp, dtype, kernel, axis)
