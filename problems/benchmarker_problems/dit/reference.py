"""DiT in NumPy with a handwritten backward pass, in the type of its weights: the reference of every check.

Shapes: B batch, H height, W width, L channels of a latent, E of a prediction, S patches in a row and in a column, N all
patches, C width of the model, T time steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING

import numpy as np

from benchmarker_problems.attention import Impl
from benchmarker_problems.layers.reference import (
    Gradients,
    Layer,
    Pullback,
    Weights,
    blocks,
    embedding,
    gelu_tanh,
    layer_norm,
    linear,
    mlp,
    patches,
    prefixed,
    recomputed,
    rope_tables,
    select,
    self_attention,
    silu,
    sum_of_rows,
)

if TYPE_CHECKING:
    from benchmarker_problems.dit import Dit

LATENT_CHANNELS = 4
LAYER_NORM_EPS = 1e-6
TIMESTEPS = 1000
FREQUENCIES = 256
"""Sines and cosines by which a time step is given to the model."""
PERIOD = 10_000.0
"""The longest period of sines and cosines, divided by 2π."""


def forward(
    weights: Weights, batch: Mapping[str, np.ndarray], problem: Dit, impl: Impl = "einsum"
) -> tuple[np.ndarray, Callable[[np.ndarray], Gradients]]:
    """Return the prediction, [B, H, W, E], and the function from its gradient to the gradient of each weight."""
    p, dtype = problem, weights["label_embed"].dtype
    patches_BNP = patches(batch["latents"].astype(dtype), p.patch_size)
    patches_BNC, patch_pullback = linear(patches_BNP, select(weights, "patch_embed"))
    x_BNC = patches_BNC + position_table(p.side, p.d_model).astype(dtype)
    condition_BC, to_embeddings = conditions(weights, batch["timesteps"], batch["labels"], dtype)
    x_BNC, blocks_pullback = blocks(
        x_BNC, weights, p.n_layer, lambda x_BNC, of_block: block(x_BNC, condition_BC, of_block, p.n_head, impl)
    )
    modulation_BE, modulation_pullback = linear(condition_BC, select(weights, "modulation_f"))
    normed_BNC, ln_pullback = adaptive_norm(x_BNC, *np.split(modulation_BE[:, None], 2, axis=-1))
    tiles_BNP, head_pullback = linear(normed_BNC, select(weights, "head"))

    def to_weights(d_prediction_BHWE: np.ndarray) -> Gradients:
        d_normed_BNC, d_head = head_pullback(patches(d_prediction_BHWE, p.patch_size))
        d_x_BNC, *d_modulation = ln_pullback(d_normed_BNC)
        d_condition_BC, d_final = modulation_pullback(np.concatenate(d_modulation, axis=-1)[:, 0])
        d_x_BNC, d_blocks = blocks_pullback(d_x_BNC)
        for layer in reversed(range(p.n_layer)):
            d_condition_BC += d_blocks.pop(f"h.{layer}.condition")
        gradients = prefixed("modulation_f", d_final) | prefixed("head", d_head) | d_blocks
        _, d_patch_embed = patch_pullback(d_x_BNC)
        return gradients | prefixed("patch_embed", d_patch_embed) | to_embeddings(d_condition_BC)

    return joined(tiles_BNP, p.side, p.patch_size), to_weights


def conditions(
    weights: Weights, timesteps_B: np.ndarray, labels_B: np.ndarray, dtype: np.dtype
) -> tuple[np.ndarray, Callable[[np.ndarray], Gradients]]:
    """Return SiLU of the sum of what time step and label give, [B, C]: the input of every modulation."""
    inner_BC, fc_pullback = linear(time_table()[timesteps_B].astype(dtype), select(weights, "time_fc"))
    active_BC, time_silu_pullback = silu(inner_BC)
    time_BC, out_pullback = linear(active_BC, select(weights, "time_out"))
    label_BC, to_table = embedding(weights["label_embed"], labels_B)
    condition_BC, silu_pullback = silu(time_BC + label_BC)

    def to_weights(d_condition_BC: np.ndarray) -> Gradients:
        d_sum_BC = silu_pullback(d_condition_BC)
        d_active_BC, d_out = out_pullback(d_sum_BC)
        _, d_fc = fc_pullback(time_silu_pullback(d_active_BC))
        return {"label_embed": to_table(d_sum_BC), **prefixed("time_out", d_out), **prefixed("time_fc", d_fc)}

    return condition_BC, to_weights


def block(
    x_BNC: np.ndarray, condition_BC: np.ndarray, weights: Weights, n_head: int, impl: Impl
) -> tuple[np.ndarray, Pullback]:
    """Apply attention and MLP; the pullback gives the gradient of `condition` with those of the weights."""
    modulation_BE, modulation_pullback = linear(condition_BC, select(weights, "modulation"))
    halves = np.split(modulation_BE[:, None], 2, axis=-1)
    attention = gated(halves[0], partial(self_attention, weights=weights, n_head=n_head, impl=impl, bias_TT=None))
    x_BNC, attention_pullback = recomputed(attention)(x_BNC)
    x_BNC, mlp_pullback = gated(halves[1], partial(mlp, weights=weights, activation=gelu_tanh))(x_BNC)

    def pullback(d_x_BNC: np.ndarray) -> tuple[np.ndarray, Gradients]:
        d_x_BNC, d_mlp = mlp_pullback(d_x_BNC)
        d_x_BNC, d_attention = attention_pullback(d_x_BNC)
        d_modulation_B1E = np.concatenate([half.pop("modulation") for half in (d_attention, d_mlp)], axis=-1)
        d_condition_BC, d_modulation = modulation_pullback(d_modulation_B1E[:, 0])
        return d_x_BNC, d_attention | d_mlp | prefixed("modulation", d_modulation) | {"condition": d_condition_BC}

    return x_BNC, pullback


def gated(modulation_B1E: np.ndarray, branch: Layer) -> Layer:
    """Return x + gate·branch(adaptive_norm(x, shift, scale)) as a layer whose weights include the `modulation`."""
    shift_B1C, scale_B1C, gate_B1C = np.split(modulation_B1E, 3, axis=-1)

    def forward(x_BNC: np.ndarray) -> tuple[np.ndarray, Pullback]:
        h_BNC, norm_pullback = adaptive_norm(x_BNC, shift_B1C, scale_B1C)
        y_BNC, branch_pullback = branch(h_BNC)

        def pullback(d_BNC: np.ndarray) -> tuple[np.ndarray, Gradients]:
            d_h_BNC, gradients = branch_pullback(d_BNC * gate_B1C)
            d_x_BNC, *d_modulation = norm_pullback(d_h_BNC)
            d_modulation.append(sum_of_rows(d_BNC * y_BNC)[:, None])
            return d_BNC + d_x_BNC, gradients | {"modulation": np.concatenate(d_modulation, axis=-1)}

        return x_BNC + gate_B1C * y_BNC, pullback

    return forward


def adaptive_norm(
    x_BNC: np.ndarray, shift_B1C: np.ndarray, scale_B1C: np.ndarray
) -> tuple[np.ndarray, Callable[[np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]]:
    """Return LayerNorm(x)·(1 + scale) + shift; LayerNorm has no weights of its own."""
    one, zero = np.ones(1, x_BNC.dtype), np.zeros(1, x_BNC.dtype)
    unit_BNC, unit_pullback = layer_norm(x_BNC, {"scale": one, "bias": zero}, LAYER_NORM_EPS)

    def pullback(d_y_BNC: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        d_x_BNC, _ = unit_pullback(d_y_BNC * (1 + scale_B1C))
        d_scale_B1C = sum_of_rows(d_y_BNC * unit_BNC)[:, None]
        return d_x_BNC, sum_of_rows(d_y_BNC)[:, None], d_scale_B1C

    return unit_BNC * (1 + scale_B1C) + shift_B1C, pullback


def joined(tiles_BNP: np.ndarray, side: int, patch_size: int) -> np.ndarray:
    """Return the image of which these are the patches, [B, H, W, E]."""
    size = side * patch_size
    tiles = tiles_BNP.reshape(-1, side, side, patch_size, patch_size, 2 * LATENT_CHANNELS)
    return tiles.swapaxes(2, 3).reshape(-1, size, size, 2 * LATENT_CHANNELS)


def noise_loss(prediction_BHWE: np.ndarray, noise_BHWL: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean squared error of the predicted noise, and its gradient: that of sigma is zero."""
    difference_BHWL = prediction_BHWE[..., :LATENT_CHANNELS] - noise_BHWL
    d_prediction_BHWE = np.zeros_like(prediction_BHWE)
    d_prediction_BHWE[..., :LATENT_CHANNELS] = 2 * difference_BHWL / difference_BHWL.size
    return np.square(difference_BHWL).mean(), d_prediction_BHWE


@cache
def time_table() -> np.ndarray:
    """Return cosines and sines of every time step, [T, 256], in float64: their angles are too large for fp32."""
    return np.concatenate(rope_tables(TIMESTEPS, FREQUENCIES, PERIOD), axis=-1)


@cache
def position_table(side: int, width: int) -> np.ndarray:
    """Return sines and cosines of the column of each patch, then those of its row, [N, C], as in the authors' code."""
    cos_SD, sin_SD = rope_tables(side, width // 2, PERIOD)
    line_SE = np.concatenate([sin_SD, cos_SD], axis=-1)
    column_SSE, row_SSE = np.broadcast_to(line_SE, (side, *line_SE.shape)), np.repeat(line_SE[:, None], side, axis=1)
    return np.concatenate([column_SSE, row_SSE], axis=-1).reshape(side * side, width)
