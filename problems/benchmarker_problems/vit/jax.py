"""ViT in JAX with Flax. Shapes: B batch, N patches, P numbers of a patch, T tokens, C width of the model, K classes.

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
from benchmarker_problems.attention.jax import FUSED_EXCLUSIONS, Kernel, fused_kernel, recomputes_scores
from benchmarker_problems.layers.jax import TransformerBlock, cross_entropy, patches
from benchmarker_problems.steps import DONE
from benchmarker_problems.steps.jax import Weights, apply, workload
from benchmarker_problems.vit import LAYER_NORM_EPS, Vit


@hookimpl
def describe_workload() -> Support:
    """Return all precisions, except those that JAX's fused attention does not support."""
    return Support(DONE, exclusions=FUSED_EXCLUSIONS)


class VitModel(nn.Module):
    """The whole model."""

    problem: Vit
    dtype: Any
    kernel: Kernel

    @nn.compact
    def __call__(self, images_BHW3: Array) -> Array:
        """Return the logits, [B, K]."""
        p, init = self.problem, nn.initializers.normal(0.02)
        class_token_C = self.param("class_token", init, (p.d_model,))
        wpe_TC = self.param("wpe", init, (p.seq_len, p.d_model))
        with jax.named_scope("patch_embed"):
            patches_BNP = patches(images_BHW3, p.patch_size)
        patches_BNC = nn.Dense(p.d_model, dtype=self.dtype, name="patch_embed")(patches_BNP)
        with jax.named_scope("embed"):
            class_B1C = jnp.broadcast_to(class_token_C, (len(images_BHW3), 1, p.d_model))
            x_BTC = jnp.concatenate([class_B1C, patches_BNC], axis=1) + wpe_TC
        fields = (p.n_head, p.d_ff, LAYER_NORM_EPS, p.impl, self.kernel, self.dtype)
        block = nn.remat(TransformerBlock) if p.recompute else TransformerBlock
        for layer in range(p.n_layer):
            x_BTC = block(*fields, name=f"h.{layer}")(x_BTC)
        x_BC = nn.LayerNorm(epsilon=LAYER_NORM_EPS, name="ln_f")(x_BTC[:, 0])
        return nn.Dense(p.classes, dtype=self.dtype, name="head")(x_BC)


@hookimpl
def build_workload(framework: JaxFramework, case: Case, problem: Vit, data: Data) -> Workload:
    """Build a step: the logits; the loss and its gradients; or the loss and an update of the weights."""
    p, kernel = problem, fused_kernel(case)
    logits_of, loss_of = functions(p, DTYPES[PRECISIONS[case.precision].compute], kernel)
    return workload(
        framework,
        case,
        data,
        "logits",
        logits_of,
        loss_of,
        terms=p.batch_size,
        inputs=("images",),
        microbatches=p.microbatches,
        recomputed_flops=p.recomputed_flops(scores=recomputes_scores(p.impl, kernel)),
    )


def functions(problem: Vit, dtype: Any, kernel: Kernel) -> tuple[Callable[..., Array], Callable[..., Array]]:
    """Return (weights, images) to logits and (weights, images, targets) to loss as functions; products in `dtype`."""
    model = VitModel(problem, dtype, kernel)

    def loss_of(weights: Weights, images: Array, targets: Array) -> Array:
        return cross_entropy(apply(model, weights, images), targets)

    return partial(apply, model), loss_of
