"""Mixture of experts in NumPy with a handwritten backward pass, in the type of its weights.

It is the reference of every check.

Shapes: B batch, T sequence, C width of the model, F width within an expert, V vocabulary, H heads, D head dimension,
N tokens of a batch, E experts, K experts of a token, R rows of an expert.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from benchmarker_problems.attention import Impl, attend, causal_bias
from benchmarker_problems.layers.reference import (
    Gradients,
    Pullback,
    Weights,
    embedding,
    linear,
    prefixed,
    rms_norm,
    rope,
    rope_tables,
    select,
    swiglu,
)

if TYPE_CHECKING:
    from benchmarker_problems.moe import MoeParams

RMS_NORM_EPS = 1e-5


def forward(
    weights: Weights, tokens_BT: np.ndarray, params: MoeParams, impl: Impl = "einsum"
) -> tuple[np.ndarray, Callable[[np.ndarray], Gradients]]:
    """Return the logits of every position, and the function from their gradient to the gradient of each weight."""
    seq_len = tokens_BT.shape[1]
    bias_TT = causal_bias(seq_len, weights["wte"].dtype.type)
    tables = rope_tables(seq_len, params.head_dim, params.rope_theta)
    x_BTC, embedding_pullback = embedding(weights["wte"], tokens_BT)
    pullbacks = []
    for layer in range(params.n_layer):
        x_BTC, pullback = block(x_BTC, select(weights, f"h.{layer}"), params, impl, bias_TT, tables)
        pullbacks.append(pullback)
    normed_BTC, norm_pullback = rms_norm(x_BTC, select(weights, "norm_f"), RMS_NORM_EPS)
    logits_BTV, head_pullback = linear(normed_BTC, select(weights, "lm_head"))

    def to_weights(d_logits_BTV: np.ndarray) -> Gradients:
        d_normed_BTC, d_head = head_pullback(d_logits_BTV)
        d_x_BTC, d_norm = norm_pullback(d_normed_BTC)
        gradients = prefixed("norm_f", d_norm)
        for layer in reversed(range(params.n_layer)):
            d_x_BTC, d_block = pullbacks[layer](d_x_BTC)
            gradients |= prefixed(f"h.{layer}", d_block)
        return gradients | {"wte": embedding_pullback(d_x_BTC)} | prefixed("lm_head", d_head)

    return logits_BTV, to_weights


def block(
    x_BTC: np.ndarray,
    weights: Weights,
    params: MoeParams,
    impl: Impl,
    bias_TT: np.ndarray,
    tables: tuple[np.ndarray, np.ndarray],
) -> tuple[np.ndarray, Pullback]:
    """Apply attention and experts, each on its normalised input and with a residual connection."""
    by_head = (*x_BTC.shape[:2], -1, params.head_dim)
    group = params.n_head // params.n_kv_head
    ends = np.cumsum(params.heads)[:2]

    h_BTC, norm_1_pullback = rms_norm(x_BTC, select(weights, "norm_1"), RMS_NORM_EPS)
    qkv_BTE, qkv_pullback = linear(h_BTC, select(weights, "attn_qkv"))
    q_BTHD, k_BTKD, v_BTKD = np.split(qkv_BTE.reshape(by_head), ends, axis=2)
    q_BTHD, q_pullback = rope(q_BTHD, *tables)
    k_BTKD, k_pullback = rope(k_BTKD, *tables)
    k_BTHD, v_BTHD = (np.repeat(each, group, axis=2) for each in (k_BTKD, v_BTKD))
    heads_BTHD, attend_pullback = attend(q_BTHD, k_BTHD, v_BTHD, impl=impl, bias_Tt=bias_TT)
    attended_BTC, proj_pullback = linear(heads_BTHD.reshape(x_BTC.shape), select(weights, "attn_proj"))
    x_BTC = x_BTC + attended_BTC

    h_BTC, norm_2_pullback = rms_norm(x_BTC, select(weights, "norm_2"), RMS_NORM_EPS)
    mixed_BTC, mixture_pullback = mixture(h_BTC, weights, params)

    def pullback(d_x_BTC: np.ndarray) -> tuple[np.ndarray, Gradients]:
        d_h_BTC, d_mixture = mixture_pullback(d_x_BTC)
        d_branch_BTC, d_norm_2 = norm_2_pullback(d_h_BTC)
        d_x_BTC = d_x_BTC + d_branch_BTC

        d_attended_BTC, d_proj = proj_pullback(d_x_BTC)
        d_q_BTHD, d_k_BTHD, d_v_BTHD = attend_pullback(d_attended_BTC.reshape(by_head))
        d_k_BTKD, d_v_BTKD = (
            each.reshape(*each.shape[:2], params.n_kv_head, group, -1).sum(axis=3) for each in (d_k_BTHD, d_v_BTHD)
        )
        d_qkv_BTED = np.concatenate([q_pullback(d_q_BTHD), k_pullback(d_k_BTKD), d_v_BTKD], axis=2)
        d_h_BTC, d_qkv = qkv_pullback(d_qkv_BTED.reshape(qkv_BTE.shape))
        d_branch_BTC, d_norm_1 = norm_1_pullback(d_h_BTC)
        gradients = {
            **prefixed("norm_1", d_norm_1),
            **prefixed("attn_qkv", d_qkv),
            **prefixed("attn_proj", d_proj),
            **prefixed("norm_2", d_norm_2),
            **d_mixture,
        }
        return d_x_BTC + d_branch_BTC, gradients

    return x_BTC + mixed_BTC, pullback


def mixture(x_BTC: np.ndarray, weights: Weights, params: MoeParams) -> tuple[np.ndarray, Pullback]:
    """Return the sum of each token's experts, weighted by the softmax of their scores; a dropped expert adds nothing.

    One expert after the other takes the rows that are sent to it.
    """
    x_NC = x_BTC.reshape(-1, params.d_model)
    scores_NE, router_pullback = linear(x_NC, select(weights, "moe_router"))
    chosen_NK = np.argsort(-scores_NE, axis=1, kind="stable")[:, : params.top_k]
    scores_NK = np.take_along_axis(scores_NE, chosen_NK, axis=1)
    gates_NK = np.exp(scores_NK - scores_NK[:, :1])
    gates_NK /= gates_NK.sum(axis=1, keepdims=True)
    kept_NK = within_capacity(chosen_NK, params)
    y_NC = np.zeros_like(x_NC)
    experts = []
    for expert in range(params.n_expert):
        sent = np.nonzero((chosen_NK == expert) & kept_NK)
        fc, proj = ({"kernel": weights[f"moe_{name}.kernel"][expert]} for name in ("fc", "proj"))
        gate_up_RE, fc_pullback = linear(x_NC[sent[0]], fc)
        inner_RF, swiglu_pullback = swiglu(gate_up_RE)
        y_RC, proj_pullback = linear(inner_RF, proj)
        y_NC[sent[0]] += gates_NK[sent][:, None] * y_RC
        experts.append((sent, y_RC, proj_pullback, swiglu_pullback, fc_pullback))

    def pullback(d_y_BTC: np.ndarray) -> tuple[np.ndarray, Gradients]:
        d_y_NC = d_y_BTC.reshape(x_NC.shape)
        d_x_NC, d_gates_NK = np.zeros_like(x_NC), np.zeros_like(gates_NK)
        d_fc, d_proj = [], []
        for sent, y_RC, proj_pullback, swiglu_pullback, fc_pullback in experts:
            d_y_RC = d_y_NC[sent[0]]
            d_gates_NK[sent] = (d_y_RC * y_RC).sum(axis=1)
            d_inner_RF, of_proj = proj_pullback(gates_NK[sent][:, None] * d_y_RC)
            d_x_RC, of_fc = fc_pullback(swiglu_pullback(d_inner_RF))
            d_x_NC[sent[0]] += d_x_RC
            d_fc.append(of_fc["kernel"])
            d_proj.append(of_proj["kernel"])
        d_scores_NK = gates_NK * (d_gates_NK - (gates_NK * d_gates_NK).sum(axis=1, keepdims=True))
        d_scores_NE = np.zeros_like(scores_NE)
        np.put_along_axis(d_scores_NE, chosen_NK, d_scores_NK, axis=1)
        d_routed_NC, d_router = router_pullback(d_scores_NE)
        gradients = {"moe_fc.kernel": np.stack(d_fc), "moe_proj.kernel": np.stack(d_proj)}
        return (d_x_NC + d_routed_NC).reshape(x_BTC.shape), prefixed("moe_router", d_router) | gradients

    return y_NC.reshape(x_BTC.shape), pullback


def within_capacity(chosen_NK: np.ndarray, params: MoeParams) -> np.ndarray:
    """Return which choices [N, K] are kept: an expert takes the first of each sequence that fill its slots."""
    if params.dispatch != "capacity":
        return np.ones(chosen_NK.shape, bool)
    chosen_BTKE = chosen_NK.reshape(-1, params.seq_len, params.top_k)[..., None] == np.arange(params.n_expert)
    before_BTE = chosen_BTKE.any(axis=2).cumsum(axis=1) - 1
    return np.take_along_axis(before_BTE.reshape(len(chosen_NK), -1), chosen_NK, axis=1) < params.capacity
