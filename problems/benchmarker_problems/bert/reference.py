"""BERT in NumPy with a handwritten backward pass, in the type of its weights: the reference of every check.

Shapes: B batch, T sequence, C width of the model, V vocabulary, N masked tokens of the batch; R rows with logits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from benchmarker_problems.attention import Impl
from benchmarker_problems.layers.reference import (
    Gradients,
    Weights,
    blocks,
    cross_entropy,
    embedding,
    gelu,
    layer_norm,
    linear,
    post_norm,
    prefixed,
    rows_of,
    select,
    sum_of_rows,
    transformer_block,
)

if TYPE_CHECKING:
    from benchmarker_problems.bert import Bert


def forward(
    weights: Weights, tokens_BT: np.ndarray, masked_N: np.ndarray, problem: Bert, impl: Impl = "einsum"
) -> tuple[np.ndarray, Callable[[np.ndarray], Gradients]]:
    """Return the logits, [B, T, V] or [N, V], and the function from their gradient to the gradient of each weight."""
    eps = problem.family.layer_norm_eps
    first, last = problem.family.first_position, problem.family.first_position + problem.seq_len
    embedded_BTC, embedding_pullback = embedding(weights["wte"], tokens_BT)
    embedded_BTC = embedded_BTC + weights["wpe"][first:last] + weights["wtt"][0]
    x_BTC, ln_embed_pullback = layer_norm(embedded_BTC, select(weights, "ln_embed"), eps)
    block = partial(transformer_block, residual=post_norm, activation=gelu, eps=eps, n_head=problem.n_head, impl=impl)
    x_BTC, blocks_pullback = blocks(x_BTC, weights, problem.n_layer, block)
    rows = slice(None) if problem.head == "all" else masked_N
    x_RC = x_BTC.reshape(-1, problem.d_model)[rows]
    inner_RC, fc_pullback = linear(x_RC, select(weights, "head_fc"))
    inner_RC, gelu_pullback = gelu(inner_RC)
    normed_RC, head_ln_pullback = layer_norm(inner_RC, select(weights, "head_ln"), eps)
    decoder = {"kernel": weights["wte"].T, "bias": weights["lm_head_bias"]}
    logits_RV, decoder_pullback = linear(normed_RC, decoder)

    def to_weights(d_logits_V: np.ndarray) -> Gradients:
        d_normed_RC, d_decoder = decoder_pullback(d_logits_V.reshape(logits_RV.shape))
        d_inner_RC, d_head_ln = head_ln_pullback(d_normed_RC)
        d_x_RC, d_fc = fc_pullback(gelu_pullback(d_inner_RC))
        d_x_BTC = np.zeros_like(x_BTC)
        d_x_BTC.reshape(-1, problem.d_model)[rows] = d_x_RC
        gradients = {"lm_head_bias": d_decoder["bias"], **prefixed("head_ln", d_head_ln), **prefixed("head_fc", d_fc)}
        d_x_BTC, d_blocks = blocks_pullback(d_x_BTC)
        gradients |= d_blocks
        d_embedded_BTC, d_ln_embed = ln_embed_pullback(d_x_BTC)
        d_wpe_PC, d_wtt_SC = np.zeros_like(weights["wpe"]), np.zeros_like(weights["wtt"])
        d_wpe_PC[first:last] = d_embedded_BTC.sum(axis=0)
        d_wtt_SC[0] = sum_of_rows(rows_of(d_embedded_BTC))
        d_wte_VC = embedding_pullback(d_embedded_BTC) + d_decoder["kernel"].T
        return gradients | prefixed("ln_embed", d_ln_embed) | {"wte": d_wte_VC, "wpe": d_wpe_PC, "wtt": d_wtt_SC}

    return logits_RV if problem.head == "masked" else logits_RV.reshape(*tokens_BT.shape, -1), to_weights


def masked_loss(
    logits_V: np.ndarray, masked_N: np.ndarray, targets_N: np.ndarray, problem: Bert
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean cross-entropy at the masked positions, and its gradient with respect to the logits."""
    if problem.head == "masked":
        return cross_entropy(logits_V, targets_N)
    d_logits_V = np.zeros_like(logits_V)
    loss, d_logits_V.reshape(-1, problem.vocab_size)[masked_N] = cross_entropy(
        logits_V.reshape(-1, problem.vocab_size)[masked_N], targets_N
    )
    return loss, d_logits_V
