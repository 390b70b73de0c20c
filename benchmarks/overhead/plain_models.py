"""Models in plain NumPy, for inference only: what one would write without a framework, and without thinking of speed.

`w` are the weights by name, as this project's problems name them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy.special import erf

Weights = Mapping[str, np.ndarray]
Function = Callable[[np.ndarray], np.ndarray]


def linear(x: np.ndarray, w: Weights, name: str) -> np.ndarray:
    """Return x·kernel, plus the bias if there is one."""
    y: np.ndarray = x @ w[f"{name}.kernel"]
    return y + w[f"{name}.bias"] if f"{name}.bias" in w else y


def normal(x: np.ndarray, eps: float) -> np.ndarray:
    """Return x with zero mean and unit variance along the last axis."""
    centred = x - x.mean(axis=-1, keepdims=True)
    normed: np.ndarray = centred / np.sqrt(np.square(centred).mean(axis=-1, keepdims=True) + eps)
    return normed


def layer_norm(x: np.ndarray, w: Weights, name: str, eps: float) -> np.ndarray:
    """Return LayerNorm with gain and bias."""
    return normal(x, eps) * w[f"{name}.scale"] + w[f"{name}.bias"]


def rms_norm(x: np.ndarray, w: Weights, name: str) -> np.ndarray:
    """Return RMSNorm with its gain."""
    normed: np.ndarray = x / np.sqrt(np.square(x).mean(axis=-1, keepdims=True) + 1e-5) * w[f"{name}.scale"]
    return normed


def gelu(x: np.ndarray) -> np.ndarray:
    """Return the exact GELU."""
    y: np.ndarray = 0.5 * x * (1 + erf(x / 2**0.5))
    return y


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    """Return the approximate GELU."""
    y: np.ndarray = 0.5 * x * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x * x * x)))
    return y


def silu(x: np.ndarray) -> np.ndarray:
    """Return x·σ(x)."""
    y: np.ndarray = x / (1 + np.exp(-x))
    return y


def swiglu(x: np.ndarray) -> np.ndarray:
    """Return silu of the first half times the second."""
    gate, up = np.split(x, 2, axis=-1)
    return silu(gate) * up


def causal(length: int) -> np.ndarray:
    """Return what is added to the scores: −∞ after the query."""
    return np.triu(np.full((length, length), -np.inf, np.float32), k=1)


def attend(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
    """Return attention of [B, T, H, D], in the same shape."""
    q, k, v = (each.swapaxes(1, 2) for each in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5
    if mask is not None:
        scores = scores + mask
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    out: np.ndarray = (weights @ v).swapaxes(1, 2)
    return out


def self_attention(x: np.ndarray, w: Weights, at: str, n_head: int, mask: np.ndarray | None = None) -> np.ndarray:
    """Return the attention of a block with as many heads of keys as of queries."""
    by_head = (*x.shape[:2], n_head, -1)
    q, k, v = (part.reshape(by_head) for part in np.split(linear(x, w, f"{at}.attn_qkv"), 3, axis=-1))
    return linear(attend(q, k, v, mask).reshape(x.shape), w, f"{at}.attn_proj")


def mlp(x: np.ndarray, w: Weights, at: str, activation: Function) -> np.ndarray:
    """Return the MLP of a block."""
    return linear(activation(linear(x, w, f"{at}.mlp_fc")), w, f"{at}.mlp_proj")


def pre_norm_blocks(
    x: np.ndarray, w: Weights, p: Any, activation: Function, eps: float, mask: np.ndarray | None = None
) -> np.ndarray:
    """Return the blocks of GPT-2 or ViT, and the norm after them."""
    for layer in range(p.n_layer):
        at = f"h.{layer}"
        x = x + self_attention(layer_norm(x, w, f"{at}.ln_1", eps), w, at, p.n_head, mask)
        x = x + mlp(layer_norm(x, w, f"{at}.ln_2", eps), w, at, activation)
    return layer_norm(x, w, "ln_f", eps)


def gpt2(w: Weights, batch: Weights, p: Any) -> np.ndarray:
    """Return GPT-2's logits."""
    tokens = batch["tokens"]
    x = w["wte"][tokens] + w["wpe"][: tokens.shape[1]]
    return pre_norm_blocks(x, w, p, gelu_tanh, 1e-5, causal(tokens.shape[1])) @ w["wte"].T


def patches(images: np.ndarray, size: int) -> np.ndarray:
    """Return the patches of images [B, H, W, C]."""
    batch, height, width, channels = images.shape
    tiles = images.reshape(batch, height // size, size, width // size, size, channels).swapaxes(2, 3)
    return tiles.reshape(batch, -1, size * size * channels)


def vit(w: Weights, batch: Weights, p: Any) -> np.ndarray:
    """Return ViT's logits."""
    embedded = linear(patches(batch["images"].astype(np.float32), p.patch_size), w, "patch_embed")
    class_token = np.broadcast_to(w["class_token"], (len(embedded), 1, p.d_model))
    x = np.concatenate([class_token, embedded], axis=1) + w["wpe"]
    return linear(pre_norm_blocks(x, w, p, gelu, 1e-6)[:, 0], w, "head")


def bert(w: Weights, batch: Weights, p: Any) -> np.ndarray:
    """Return BERT's logits at every position."""
    eps, first = p.family.layer_norm_eps, p.family.first_position
    x = w["wte"][batch["tokens"]] + w["wpe"][first : first + p.seq_len] + w["wtt"][0]
    x = layer_norm(x, w, "ln_embed", eps)
    for layer in range(p.n_layer):
        at = f"h.{layer}"
        x = layer_norm(x + self_attention(x, w, at, p.n_head), w, f"{at}.ln_1", eps)
        x = layer_norm(x + mlp(x, w, at, gelu), w, f"{at}.ln_2", eps)
    x = layer_norm(gelu(linear(x, w, "head_fc")), w, "head_ln", eps)
    logits: np.ndarray = x @ w["wte"].T + w["lm_head_bias"]
    return logits


def angles(count: int, dim: int, base: float) -> np.ndarray:
    """Return position times frequency, [count, dim / 2]."""
    return np.arange(count)[:, None] * base ** (-np.arange(0, dim, 2) / dim)


def rotated(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """Return x [B, T, H, D] with its halves rotated."""
    first, second = np.split(x, 2, axis=-1)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def decoder(w: Weights, batch: Weights, p: Any, inner: Callable[[np.ndarray, str], np.ndarray]) -> np.ndarray:
    """Return the logits of Llama, or of a model that has something else instead of its MLP."""
    tokens = batch["tokens"]
    length, dim = tokens.shape[1], p.d_model // p.n_head
    turns = angles(length, dim, p.rope_theta)[:, None]
    cos, sin = np.cos(turns).astype(np.float32), np.sin(turns).astype(np.float32)
    mask, group = causal(length), p.n_head // p.n_kv_head
    x = w["wte"][tokens]
    for layer in range(p.n_layer):
        at = f"h.{layer}"
        qkv = linear(rms_norm(x, w, f"{at}.norm_1"), w, f"{at}.attn_qkv").reshape(*tokens.shape, -1, dim)
        q, k, v = np.split(qkv, [p.n_head, p.n_head + p.n_kv_head], axis=2)
        k, v = (np.repeat(each, group, axis=2) for each in (rotated(k, cos, sin), v))
        x = x + linear(attend(rotated(q, cos, sin), k, v, mask).reshape(x.shape), w, f"{at}.attn_proj")
        x = x + inner(rms_norm(x, w, f"{at}.norm_2"), at)
    x = rms_norm(x, w, "norm_f")
    logits: np.ndarray = x @ w["wte"].T if p.tied_head else linear(x, w, "lm_head")
    return logits


def llama(w: Weights, batch: Weights, p: Any) -> np.ndarray:
    """Return Llama's logits."""
    return decoder(w, batch, p, lambda x, at: mlp(x, w, at, swiglu))


def moe(w: Weights, batch: Weights, p: Any) -> np.ndarray:
    """Return the logits of a mixture of experts that drops no token."""

    def mixture(x: np.ndarray, at: str) -> np.ndarray:
        rows = x.reshape(-1, p.d_model)
        scores = linear(rows, w, f"{at}.moe_router")
        chosen = np.argsort(-scores, axis=1, kind="stable")[:, : p.top_k]
        gates = np.exp(np.take_along_axis(scores, chosen, axis=1))
        gates /= gates.sum(axis=1, keepdims=True)
        y = np.zeros_like(rows)
        for expert in range(p.n_expert):
            row, rank = np.nonzero(chosen == expert)
            inner = swiglu(rows[row] @ w[f"{at}.moe_fc.kernel"][expert])
            y[row] += gates[row, rank][:, None] * (inner @ w[f"{at}.moe_proj.kernel"][expert])
        return y.reshape(x.shape)

    return decoder(w, batch, p, mixture)


def dit(w: Weights, batch: Weights, p: Any) -> np.ndarray:
    """Return DiT's prediction, [B, H, W, 8]."""
    width, side = p.d_model, p.image_size // 8 // p.patch_size
    line = angles(side, width // 2, 10_000.0)
    along = np.concatenate([np.sin(line), np.cos(line)], axis=-1)
    column, row = np.tile(along, (side, 1)), np.repeat(along, side, axis=0)
    x = linear(patches(batch["latents"].astype(np.float32), p.patch_size), w, "patch_embed")
    x = x + np.concatenate([column, row], axis=-1).astype(np.float32)
    phase = batch["timesteps"][:, None] * 10_000.0 ** (-np.arange(0, 256, 2) / 256)
    time = np.concatenate([np.cos(phase), np.sin(phase)], axis=-1).astype(np.float32)
    condition = silu(linear(silu(linear(time, w, "time_fc")), w, "time_out") + w["label_embed"][batch["labels"]])
    for layer in range(p.n_layer):
        at = f"h.{layer}"
        shift_1, scale_1, gate_1, shift_2, scale_2, gate_2 = np.split(
            linear(condition, w, f"{at}.modulation")[:, None], 6, axis=-1
        )
        x = x + gate_1 * self_attention(normal(x, 1e-6) * (1 + scale_1) + shift_1, w, at, p.n_head)
        x = x + gate_2 * mlp(normal(x, 1e-6) * (1 + scale_2) + shift_2, w, at, gelu_tanh)
    shift, scale = np.split(linear(condition, w, "modulation_f")[:, None], 2, axis=-1)
    tiles = linear(normal(x, 1e-6) * (1 + scale) + shift, w, "head")
    tiles = tiles.reshape(-1, side, side, p.patch_size, p.patch_size, 8).swapaxes(2, 3)
    return tiles.reshape(-1, side * p.patch_size, side * p.patch_size, 8)
