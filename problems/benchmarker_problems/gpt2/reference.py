"""GPT-2 in NumPy with a handwritten backward pass, in the type of its weights: the reference of every check.

Shapes: B batch, T sequence, C width of the model, F width within the MLP, V vocabulary, H heads.
"""

from collections.abc import Callable

import numpy as np

from benchmarker_problems.attention import Impl, causal_bias
from benchmarker_problems.layers.reference import (
    Gradients,
    Pullback,
    Weights,
    gelu_tanh,
    layer_norm,
    pre_norm,
    prefixed,
    select,
    transformer_block,
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
    return transformer_block(
        x_BTC,
        weights,
        residual=pre_norm,
        activation=gelu_tanh,
        eps=LAYER_NORM_EPS,
        n_head=n_head,
        impl=impl,
        bias_TT=bias_TT,
    )
