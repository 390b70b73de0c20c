"""ViT in JAX with Flax. Shapes: B batch, N patches, T tokens, C width of the model, F width within the MLP, K classes.

In mixed precision, fp32 weights are cast for each product. In 16-bit types LayerNorm and softmax accumulate in fp32,
and the loss is fp32. Flax creates a scope for each of its modules; the other scopes are set explicitly.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array

from benchmarker import PRECISIONS, Case, Data, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.jax import DTYPES, JaxFramework
from benchmarker_problems.attention import product_flops
from benchmarker_problems.attention.jax import FUSED_EXCLUSIONS, Kernel, attend, fused_kernel, recomputes_scores
from benchmarker_problems.layers.jax import cross_entropy, patches
from benchmarker_problems.steps import DONE
from benchmarker_problems.steps.jax import Weights, apply, workload
from benchmarker_problems.vit import VitParams
from benchmarker_problems.vit.reference import LAYER_NORM_EPS


@hookimpl
def describe_workload() -> Support:
    """Return all precisions, except those that JAX's fused attention does not support."""
    return Support(DONE, exclusions=FUSED_EXCLUSIONS)


class Block(nn.Module):
    """Attention and MLP, each on its normalised input and with a residual connection."""

    params: VitParams
    dtype: Any
    kernel: Kernel

    @nn.compact
    def __call__(self, x_BTC: Array) -> Array:
        """Apply the block."""
        p = self.params
        linear = partial(nn.Dense, dtype=self.dtype)
        layer_norm = partial(nn.LayerNorm, epsilon=LAYER_NORM_EPS)

        h_BTC = layer_norm(name="ln_1")(x_BTC)
        qkv_BTE = linear(3 * p.d_model, name="attn_qkv")(h_BTC)
        q_BTHD, k_BTHD, v_BTHD = (
            part.reshape(*part.shape[:2], p.n_head, p.head_dim) for part in jnp.split(qkv_BTE, 3, axis=-1)
        )
        heads_BTHD = attend(q_BTHD, k_BTHD, v_BTHD, impl=p.impl, causal=False, kernel=self.kernel)
        attended_BTC = linear(p.d_model, name="attn_proj")(heads_BTHD.reshape(x_BTC.shape))
        with jax.named_scope("attn_proj"):
            x_BTC = x_BTC + attended_BTC

        h_BTC = layer_norm(name="ln_2")(x_BTC)
        inner_BTF = linear(p.d_ff, name="mlp_fc")(h_BTC)
        with jax.named_scope("mlp_gelu"):
            inner_BTF = nn.gelu(inner_BTF, approximate=False)
        mlp_BTC = linear(p.d_model, name="mlp_proj")(inner_BTF)
        with jax.named_scope("mlp_proj"):
            return x_BTC + mlp_BTC


class VitModel(nn.Module):
    """The whole model."""

    params: VitParams
    dtype: Any
    kernel: Kernel

    @nn.compact
    def __call__(self, images_BHW3: Array) -> Array:
        """Return the logits, [B, K]."""
        p, init = self.params, nn.initializers.normal(0.02)
        class_token_C = self.param("class_token", init, (p.d_model,))
        wpe_TC = self.param("wpe", init, (p.seq_len, p.d_model))
        with jax.named_scope("patch_embed"):
            patches_BNP = patches(images_BHW3, p.patch_size)
        patches_BNC = nn.Dense(p.d_model, dtype=self.dtype, name="patch_embed")(patches_BNP)
        with jax.named_scope("embed"):
            class_B1C = jnp.broadcast_to(class_token_C, (len(images_BHW3), 1, p.d_model))
            x_BTC = jnp.concatenate([class_B1C, patches_BNC], axis=1) + wpe_TC
        for layer in range(p.n_layer):
            x_BTC = Block(p, self.dtype, self.kernel, name=f"h.{layer}")(x_BTC)
        x_BC = nn.LayerNorm(epsilon=LAYER_NORM_EPS, name="ln_f")(x_BTC[:, 0])
        return nn.Dense(p.classes, dtype=self.dtype, name="head")(x_BC)


@hookimpl
def build_workload(framework: JaxFramework, case: Case, params: VitParams, data: Data) -> Workload:
    """Build a step: the logits; the loss and its gradients; or the loss and an update of the weights."""
    p, kernel = params, fused_kernel(case)
    logits_of, loss_of = functions(p, DTYPES[PRECISIONS[case.precision].compute], kernel)
    scores_flops = p.n_layer * product_flops(p.batch_size, p.n_head, p.seq_len, p.head_dim)
    return workload(
        framework,
        case,
        data,
        "logits",
        logits_of,
        loss_of,
        terms=p.batch_size,
        inputs=("images",),
        recomputed_flops=scores_flops if recomputes_scores(p.impl, kernel) else 0,
    )


def functions(params: VitParams, dtype: Any, kernel: Kernel) -> tuple[Callable[..., Array], Callable[..., Array]]:
    """Return (weights, images) to logits and (weights, images, targets) to loss as functions; products in `dtype`."""
    model = VitModel(params, dtype, kernel)

    def loss_of(weights: Weights, images: Array, targets: Array) -> Array:
        return cross_entropy(apply(model, weights, images), targets)

    return partial(apply, model), loss_of
