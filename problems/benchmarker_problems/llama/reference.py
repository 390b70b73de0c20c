"""Llama in NumPy with a handwritten backward pass, in the type of its weights: the reference of every check.

Shapes: B batch, T sequence, C width of the model, F width within the MLP, V vocabulary, H heads, D head dimension.
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
    from benchmarker_problems.llama import LlamaParams

RMS_NORM_EPS = 1e-5


def forward(
    weights: Weights, tokens_BT: np.ndarray, params: LlamaParams, impl: Impl = "einsum"
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
    head = {"kernel": weights["wte"].T} if params.tied_head else select(weights, "lm_head")
    logits_BTV, head_pullback = linear(normed_BTC, head)

    def to_weights(d_logits_BTV: np.ndarray) -> Gradients:
        d_normed_BTC, d_head = head_pullback(d_logits_BTV)
        d_x_BTC, d_norm = norm_pullback(d_normed_BTC)
        gradients = prefixed("norm_f", d_norm)
        for layer in reversed(range(params.n_layer)):
            d_x_BTC, d_block = pullbacks[layer](d_x_BTC)
            gradients |= prefixed(f"h.{layer}", d_block)
        d_wte_VC = embedding_pullback(d_x_BTC)
        if params.tied_head:
            return gradients | {"wte": d_wte_VC + d_head["kernel"].T}
        return gradients | {"wte": d_wte_VC} | prefixed("lm_head", d_head)

    return logits_BTV, to_weights


def block(
    x_BTC: np.ndarray,
    weights: Weights,
    params: LlamaParams,
    impl: Impl,
    bias_TT: np.ndarray,
    tables: tuple[np.ndarray, np.ndarray],
) -> tuple[np.ndarray, Pullback]:
    """Apply attention and MLP, each on its normalised input and with a residual connection."""
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
    gate_up_BTE, fc_pullback = linear(h_BTC, select(weights, "mlp_fc"))
    inner_BTF, swiglu_pullback = swiglu(gate_up_BTE)
    mlp_BTC, mlp_proj_pullback = linear(inner_BTF, select(weights, "mlp_proj"))

    def pullback(d_x_BTC: np.ndarray) -> tuple[np.ndarray, Gradients]:
        d_inner_BTF, d_mlp_proj = mlp_proj_pullback(d_x_BTC)
        d_h_BTC, d_fc = fc_pullback(swiglu_pullback(d_inner_BTF))
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
            **prefixed("mlp_fc", d_fc),
            **prefixed("mlp_proj", d_mlp_proj),
        }
        return d_x_BTC + d_branch_BTC, gradients

    return x_BTC + mlp_BTC, pullback
