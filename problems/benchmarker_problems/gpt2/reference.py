"""GPT-2 in NumPy with a handwritten backward pass, in the type of its weights: the reference of every check.

Shapes: B batch, T sequence, C width of the model, V vocabulary, P positions.
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from benchmarker_problems.attention import Impl, causal_bias
from benchmarker_problems.layers.reference import (
    Gradients,
    Weights,
    blocks,
    gelu_tanh,
    layer_norm,
    pre_norm,
    prefixed,
    select,
    transformer_block,
)

LAYER_NORM_EPS = 1e-5


def forward(
    weights: Weights, tokens_BT: np.ndarray, n_layer: int, n_head: int, impl: Impl = "einsum"
) -> tuple[np.ndarray, Callable[[np.ndarray], Gradients]]:
    """Return the logits of every position, and the function from their gradient to the gradient of each weight."""
    seq_len = tokens_BT.shape[1]
    wte_VC, wpe_PC = weights["wte"], weights["wpe"]
    block = partial(
        transformer_block,
        residual=pre_norm,
        activation=gelu_tanh,
        eps=LAYER_NORM_EPS,
        n_head=n_head,
        impl=impl,
        bias_TT=causal_bias(seq_len, wte_VC.dtype.type),
    )
    x_BTC = wte_VC[tokens_BT] + wpe_PC[:seq_len]
    x_BTC, blocks_pullback = blocks(x_BTC, weights, n_layer, block)
    normed_BTC, ln_f_pullback = layer_norm(x_BTC, select(weights, "ln_f"), LAYER_NORM_EPS)
    logits_BTV = normed_BTC @ wte_VC.T

    def to_weights(d_logits_BTV: np.ndarray) -> Gradients:
        d_x_BTC, d_ln_f = ln_f_pullback(d_logits_BTV @ wte_VC)
        d_x_BTC, d_blocks = blocks_pullback(d_x_BTC)
        d_wte_VC = np.einsum("BTV,BTC->VC", d_logits_BTV, normed_BTC)
        np.add.at(d_wte_VC, tokens_BT, d_x_BTC)
        d_wpe_PC = np.zeros_like(wpe_PC)
        d_wpe_PC[:seq_len] = d_x_BTC.sum(axis=0)
        return prefixed("ln_f", d_ln_f) | d_blocks | {"wte": d_wte_VC, "wpe": d_wpe_PC}

    return logits_BTV, to_weights
