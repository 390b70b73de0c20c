"""GPT-2 in NumPy with a handwritten backward pass, in the type of its weights: the reference of every check.

Shapes: B batch, T sequence, C width of the model, F width within the MLP, V vocabulary, H heads.
"""

from collections.abc import Callable

import numpy as np

from benchmarker_problems.attention import Impl, attend, causal_bias
from benchmarker_problems.layers.reference import (
    Gradients,
    Pullback,
    Weights,
    gelu_tanh,
    layer_norm,
    linear,
    prefixed,
    select,
)

LAYER_NORM_EPS = 1e-5


def forward(
    weights: Weights, tokens_BT: np.ndarray, n_layer: int, n_head: int
) -> tuple[np.ndarray, Callable[[np.ndarray], Gradients]]:
    """Return the logits of every position, and the function from their gradient to the gradient of each weight."""
    seq_len = tokens_BT.shape[1]
    wte_VC, wpe_PC = weights["wte"], weights["wpe"]
    bias_TT = causal_bias(seq_len, wte_VC.dtype.type)
    x_BTC = wte_VC[tokens_BT] + wpe_PC[:seq_len]
    pullbacks = []
    for layer in range(n_layer):
        x_BTC, pullback = block(x_BTC, select(weights, f"h.{layer}"), n_head, "einsum", bias_TT)
        pullbacks.append(pullback)
    normed_BTC, ln_f_pullback = layer_norm(x_BTC, select(weights, "ln_f"), LAYER_NORM_EPS)
    logits_BTV = normed_BTC @ wte_VC.T

    def to_weights(d_logits_BTV: np.ndarray) -> Gradients:
        d_x_BTC, d_ln_f = ln_f_pullback(d_logits_BTV @ wte_VC)
        gradients = prefixed("ln_f", d_ln_f)
        for layer in reversed(range(n_layer)):
            d_x_BTC, d_block = pullbacks[layer](d_x_BTC)
            gradients |= prefixed(f"h.{layer}", d_block)
        d_wte_VC = np.einsum("BTV,BTC->VC", d_logits_BTV, normed_BTC)
        np.add.at(d_wte_VC, tokens_BT, d_x_BTC)
        d_wpe_PC = np.zeros_like(wpe_PC)
        d_wpe_PC[:seq_len] = d_x_BTC.sum(axis=0)
        return gradients | {"wte": d_wte_VC, "wpe": d_wpe_PC}

    return logits_BTV, to_weights


def block(
    x_BTC: np.ndarray, weights: Weights, n_head: int, impl: Impl, bias_TT: np.ndarray
) -> tuple[np.ndarray, Pullback]:
    """Apply attention and MLP, each on its normalised input and with a residual connection."""
    batch_size, seq_len, d_model = x_BTC.shape
    by_head = (batch_size, seq_len, n_head, d_model // n_head)

    h_BTC, ln_1_pullback = layer_norm(x_BTC, select(weights, "ln_1"), LAYER_NORM_EPS)
    qkv_BTE, qkv_pullback = linear(h_BTC, select(weights, "attn_qkv"))
    q_BTHD, k_BTHD, v_BTHD = (part.reshape(by_head) for part in np.split(qkv_BTE, 3, axis=-1))
    heads_BTHD, attend_pullback = attend(q_BTHD, k_BTHD, v_BTHD, impl=impl, bias_Tt=bias_TT)
    attended_BTC, proj_pullback = linear(heads_BTHD.reshape(x_BTC.shape), select(weights, "attn_proj"))
    x_BTC = x_BTC + attended_BTC

    h_BTC, ln_2_pullback = layer_norm(x_BTC, select(weights, "ln_2"), LAYER_NORM_EPS)
    inner_BTF, fc_pullback = linear(h_BTC, select(weights, "mlp_fc"))
    inner_BTF, gelu_pullback = gelu_tanh(inner_BTF)
    mlp_BTC, mlp_proj_pullback = linear(inner_BTF, select(weights, "mlp_proj"))

    def pullback(d_x_BTC: np.ndarray) -> tuple[np.ndarray, Gradients]:
        d_inner_BTF, d_mlp_proj = mlp_proj_pullback(d_x_BTC)
        d_h_BTC, d_fc = fc_pullback(gelu_pullback(d_inner_BTF))
        d_branch_BTC, d_ln_2 = ln_2_pullback(d_h_BTC)
        d_x_BTC = d_x_BTC + d_branch_BTC

        d_attended_BTC, d_proj = proj_pullback(d_x_BTC)
        d_qkv = [part.reshape(d_x_BTC.shape) for part in attend_pullback(d_attended_BTC.reshape(by_head))]
        d_h_BTC, d_qkv_weights = qkv_pullback(np.concatenate(d_qkv, axis=-1))
        d_branch_BTC, d_ln_1 = ln_1_pullback(d_h_BTC)
        gradients = {
            **prefixed("ln_1", d_ln_1),
            **prefixed("attn_qkv", d_qkv_weights),
            **prefixed("attn_proj", d_proj),
            **prefixed("ln_2", d_ln_2),
            **prefixed("mlp_fc", d_fc),
            **prefixed("mlp_proj", d_mlp_proj),
        }
        return d_x_BTC + d_branch_BTC, gradients

    return x_BTC + mlp_BTC, pullback
