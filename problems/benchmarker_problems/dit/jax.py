"""DiT in JAX with Flax.

Shapes: B batch, H height, W width, L channels of a latent, E of a prediction, N patches, C width of the model, F width
within the MLP. In mixed precision, fp32 weights are cast for each product. In 16-bit types LayerNorm and softmax
accumulate in fp32, and the loss is fp32. Flax creates a scope for each of its modules; the other scopes are set
explicitly.

With `--recompute` on a CPU, XLA finds that the product `modulation` of a block has the same input in both passes, and
computes it once.
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
from benchmarker_problems.attention.jax import FUSED_EXCLUSIONS, Kernel, attend, fused_kernel, recomputes_scores
from benchmarker_problems.dit import Dit
from benchmarker_problems.dit.reference import LATENT_CHANNELS, LAYER_NORM_EPS, position_table, time_table
from benchmarker_problems.layers.jax import patches
from benchmarker_problems.steps import DONE
from benchmarker_problems.steps.jax import Weights, apply, workload


@hookimpl
def describe_workload() -> Support:
    """Return all precisions, except those that JAX's fused attention does not support."""
    return Support(DONE, exclusions=FUSED_EXCLUSIONS)


class AdaptiveNorm(nn.Module):
    """LayerNorm without weights, and then the given scale and shift."""

    @nn.compact
    def __call__(self, x_BNC: Array, shift_B1C: Array, scale_B1C: Array) -> Array:
        """Normalise."""
        unit_BNC = nn.LayerNorm(epsilon=LAYER_NORM_EPS, use_bias=False, use_scale=False)(x_BNC)
        return unit_BNC * (1 + scale_B1C) + shift_B1C


class Block(nn.Module):
    """Attention and MLP, each on its normalised and modulated input, with a gate and a residual connection."""

    problem: Dit
    dtype: Any
    kernel: Kernel

    @nn.compact
    def __call__(self, x_BNC: Array, condition_BC: Array) -> Array:
        """Apply the block."""
        p = self.problem
        linear = partial(nn.Dense, dtype=self.dtype)
        modulation_BE = linear(6 * p.d_model, name="modulation")(condition_BC)
        shift_1, scale_1, gate_1, shift_2, scale_2, gate_2 = jnp.split(modulation_BE[:, None], 6, axis=-1)

        h_BNC = AdaptiveNorm(name="ln_1")(x_BNC, shift_1, scale_1)
        qkv_BNE = linear(3 * p.d_model, name="attn_qkv")(h_BNC)
        q_BNHD, k_BNHD, v_BNHD = (
            part.reshape(*part.shape[:2], p.n_head, p.head_dim) for part in jnp.split(qkv_BNE, 3, axis=-1)
        )
        heads_BNHD = attend(q_BNHD, k_BNHD, v_BNHD, impl=p.impl, causal=False, kernel=self.kernel)
        attended_BNC = linear(p.d_model, name="attn_proj")(heads_BNHD.reshape(x_BNC.shape))
        with jax.named_scope("attn_proj"):
            x_BNC = x_BNC + gate_1 * attended_BNC

        h_BNC = AdaptiveNorm(name="ln_2")(x_BNC, shift_2, scale_2)
        inner_BNF = linear(p.d_ff, name="mlp_fc")(h_BNC)
        with jax.named_scope("mlp_gelu"):
            inner_BNF = nn.gelu(inner_BNF, approximate=True)
        mlp_BNC = linear(p.d_model, name="mlp_proj")(inner_BNF)
        with jax.named_scope("mlp_proj"):
            return x_BNC + gate_2 * mlp_BNC


class DitModel(nn.Module):
    """The whole model."""

    problem: Dit
    dtype: Any
    kernel: Kernel

    @nn.compact
    def __call__(self, latents_BHWL: Array, timesteps_B: Array, labels_B: Array) -> Array:
        """Return the prediction, [B, H, W, E]."""
        p = self.problem
        linear = partial(nn.Dense, dtype=self.dtype)
        label_embed_KC = self.param("label_embed", nn.initializers.normal(0.02), (p.classes + 1, p.d_model))
        dtype = label_embed_KC.dtype

        with jax.named_scope("patch_embed"):
            patches_BNP = patches(latents_BHWL, p.patch_size)
        patches_BNC = linear(p.d_model, name="patch_embed")(patches_BNP)
        with jax.named_scope("patch_embed"):
            x_BNC = patches_BNC + jnp.asarray(position_table(p.side, p.d_model), dtype)

        with jax.named_scope("time_fc"):
            waves_B256 = jnp.asarray(time_table(), dtype)[timesteps_B]
        time_BC = linear(p.d_model, name="time_fc")(waves_B256)
        with jax.named_scope("time_silu"):
            time_BC = nn.silu(time_BC)
        time_BC = linear(p.d_model, name="time_out")(time_BC)
        with jax.named_scope("label_embed"):
            condition_BC = nn.silu(time_BC + label_embed_KC[labels_B])

        block = nn.remat(Block) if p.recompute else Block
        for layer in range(p.n_layer):
            x_BNC = block(p, self.dtype, self.kernel, name=f"h.{layer}")(x_BNC, condition_BC)
        modulation_BE = linear(2 * p.d_model, name="modulation_f")(condition_BC)
        x_BNC = AdaptiveNorm(name="ln_f")(x_BNC, *jnp.split(modulation_BE[:, None], 2, axis=-1))
        tiles_BNP = linear(2 * p.patch_len, name="head")(x_BNC)
        with jax.named_scope("head"):
            tiles = tiles_BNP.reshape(-1, p.side, p.side, p.patch_size, p.patch_size, 2 * LATENT_CHANNELS)
            return tiles.swapaxes(2, 3).reshape(*latents_BHWL.shape[:3], 2 * LATENT_CHANNELS)


@hookimpl
def build_workload(framework: JaxFramework, case: Case, problem: Dit, data: Data) -> Workload:
    """Build a step: the prediction; the loss and its gradients; or the loss and an update of the weights."""
    p, kernel = problem, fused_kernel(case)
    prediction_of, loss_of = functions(p, DTYPES[PRECISIONS[case.precision].compute], kernel)
    return workload(
        framework,
        case,
        data,
        "prediction",
        prediction_of,
        loss_of,
        terms=p.batch_size * p.seq_len,
        inputs=("latents", "timesteps", "labels"),
        settings=p.optimizer(),
        microbatches=p.microbatches,
        recomputed_flops=p.recomputed_flops(
            scores=recomputes_scores(p.impl, kernel),
            kept=("modulation",) if case.device == "cpu" else (),
        ),
    )


def functions(problem: Dit, dtype: Any, kernel: Kernel) -> tuple[Callable[..., Array], Callable[..., Array]]:
    """Return (weights, latents, time steps, labels) to prediction and (…, noise) to loss; products in `dtype`."""
    model = DitModel(problem, dtype, kernel)

    def loss_of(weights: Weights, latents: Array, timesteps: Array, labels: Array, noise: Array) -> Array:
        prediction_BHWE = apply(model, weights, latents, timesteps, labels)
        with jax.named_scope("loss"):
            sum_dtype = jnp.promote_types(prediction_BHWE.dtype, jnp.float32)
            predicted_BHWL = prediction_BHWE[..., :LATENT_CHANNELS].astype(sum_dtype)
            return jnp.square(predicted_BHWL - noise.astype(sum_dtype)).mean()

    return partial(apply, model), loss_of
