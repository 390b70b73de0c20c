"""A decoder like Llama in NumPy with a handwritten backward pass, in the type of its weights: the reference of checks.

Shapes: B batch, T sequence, C width of the model, V vocabulary, H heads of queries, K of keys and values, D head
dimension.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from benchmarker_problems.attention import Impl, attend, causal_bias
from benchmarker_problems.layers.reference import (
    Gradients,
    Layer,
    Pullback,
    Weights,
    blocks,
    embedding,
    linear,
    named,
    pre_norm,
    prefixed,
    rms_norm,
    rope,
    rope_tables,
    select,
)

if TYPE_CHECKING:
    from benchmarker_problems.decoder import Decoder

RMS_NORM_EPS = 1e-5


def forward(
    weights: Weights, tokens_BT: np.ndarray, problem: Decoder, impl: Impl = "einsum"
) -> tuple[np.ndarray, Callable[[np.ndarray], Gradients]]:
    """Return the logits of every position, and the function from their gradient to the gradient of each weight."""
    seq_len = tokens_BT.shape[1]
    bias_TT = causal_bias(seq_len, weights["wte"].dtype.type)
    tables = rope_tables(seq_len, problem.head_dim, problem.rope_theta)
    x_BTC, embedding_pullback = embedding(weights["wte"], tokens_BT)
    x_BTC, blocks_pullback = blocks(
        x_BTC,
        weights,
        problem.n_layer,
        lambda x_BTC, of_block: block(x_BTC, of_block, problem, impl, bias_TT, tables),
    )
    normed_BTC, norm_pullback = rms_norm(x_BTC, select(weights, "norm_f"), RMS_NORM_EPS)
    head = {"kernel": weights["wte"].T} if problem.tied_head else select(weights, "lm_head")
    logits_BTV, head_pullback = linear(normed_BTC, head)

    def to_weights(d_logits_BTV: np.ndarray) -> Gradients:
        d_normed_BTC, d_head = head_pullback(d_logits_BTV)
        d_x_BTC, d_norm = norm_pullback(d_normed_BTC)
        d_x_BTC, d_blocks = blocks_pullback(d_x_BTC)
        gradients = prefixed("norm_f", d_norm) | d_blocks
        d_wte_VC = embedding_pullback(d_x_BTC)
        if problem.tied_head:
            return gradients | {"wte": d_wte_VC + d_head["kernel"].T}
        return gradients | {"wte": d_wte_VC} | prefixed("lm_head", d_head)

    return logits_BTV, to_weights


def block(
    x_BTC: np.ndarray,
    weights: Weights,
    problem: Decoder,
    impl: Impl,
    bias_TT: np.ndarray,
    tables: tuple[np.ndarray, np.ndarray],
) -> tuple[np.ndarray, Pullback]:
    """Apply attention and MLP, each on its normalised input and with a residual connection."""

    def norm(name: str) -> Layer:
        return named(name, lambda x_BTC: rms_norm(x_BTC, select(weights, name), RMS_NORM_EPS))

    x_BTC, attention_pullback = pre_norm(
        x_BTC, norm("norm_1"), lambda h_BTC: grouped_attention(h_BTC, weights, problem, impl, bias_TT, tables)
    )
    x_BTC, mlp_pullback = pre_norm(x_BTC, norm("norm_2"), lambda h_BTC: problem.mlp_reference(h_BTC, weights))

    def pullback(d_x_BTC: np.ndarray) -> tuple[np.ndarray, Gradients]:
        d_x_BTC, d_mlp = mlp_pullback(d_x_BTC)
        d_x_BTC, d_attention = attention_pullback(d_x_BTC)
        return d_x_BTC, d_attention | d_mlp

    return x_BTC, pullback


def grouped_attention(
    x_BTC: np.ndarray,
    weights: Weights,
    problem: Decoder,
    impl: Impl,
    bias_TT: np.ndarray,
    tables: tuple[np.ndarray, np.ndarray],
) -> tuple[np.ndarray, Pullback]:
    """Project to queries, keys and values (`attn_qkv`), rotate, attend in groups, and project heads (`attn_proj`)."""
    by_head = (*x_BTC.shape[:2], -1, problem.head_dim)
    group = problem.n_head // problem.n_kv_head
    ends = np.cumsum(problem.heads)[:2]

    qkv_BTE, qkv_pullback = linear(x_BTC, select(weights, "attn_qkv"))
    q_BTHD, k_BTKD, v_BTKD = np.split(qkv_BTE.reshape(by_head), ends, axis=2)
    q_BTHD, q_pullback = rope(q_BTHD, *tables)
    k_BTKD, k_pullback = rope(k_BTKD, *tables)
    k_BTHD, v_BTHD = (np.repeat(each, group, axis=2) for each in (k_BTKD, v_BTKD))
    heads_BTHD, attend_pullback = attend(q_BTHD, k_BTHD, v_BTHD, impl=impl, bias_Tt=bias_TT)
    y_BTC, proj_pullback = linear(heads_BTHD.reshape(x_BTC.shape), select(weights, "attn_proj"))

    def pullback(d_y_BTC: np.ndarray) -> tuple[np.ndarray, Gradients]:
        d_heads_BTC, d_proj = proj_pullback(d_y_BTC)
        d_q_BTHD, d_k_BTHD, d_v_BTHD = attend_pullback(d_heads_BTC.reshape(by_head))
        d_k_BTKD, d_v_BTKD = (
            each.reshape(*each.shape[:2], problem.n_kv_head, group, -1).sum(axis=3) for each in (d_k_BTHD, d_v_BTHD)
        )
        d_qkv_BTED = np.concatenate([q_pullback(d_q_BTHD), k_pullback(d_k_BTKD), d_v_BTKD], axis=2)
        d_x_BTC, d_qkv = qkv_pullback(d_qkv_BTED.reshape(qkv_BTE.shape))
        return d_x_BTC, prefixed("attn_qkv", d_qkv) | prefixed("attn_proj", d_proj)

    return y_BTC, pullback
