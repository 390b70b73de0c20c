"""GPT-2 in NumPy: the functions of the reference, on BLAS, in the type of the weights."""

from itertools import cycle

import numpy as np

from benchmarker import Data, Support, Workload, hookimpl
from benchmarker_problems.attention import causal_bias
from benchmarker_problems.gpt2 import Gpt2Params
from benchmarker_problems.gpt2.reference import LAYER_NORM_EPS, block
from benchmarker_problems.layers.reference import layer_norm, select


@hookimpl
def describe_workload() -> Support:
    """Return the types that BLAS supports; there is no fused attention."""
    return Support({"inference": ("fp64", "fp32")}, choices={"impl": ("einsum", "matmul")})


@hookimpl
def build_workload(params: Gpt2Params, data: Data) -> Workload:
    """Build a step: the logits of one batch."""
    batches = cycle(data.batches)
    wte_VC, wpe_TC = data.weights["wte"], data.weights["wpe"][: params.seq_len]
    blocks = [select(data.weights, f"h.{layer}") for layer in range(params.n_layer)]
    ln_f = select(data.weights, "ln_f")
    bias_TT = causal_bias(params.seq_len, wte_VC.dtype.type)

    def step() -> np.ndarray:
        x_BTC = wte_VC[next(batches)["tokens"]] + wpe_TC
        for weights in blocks:
            x_BTC, _ = block(x_BTC, weights, params.n_head, params.impl, bias_TT)
        normed_BTC, _ = layer_norm(x_BTC, ln_f, LAYER_NORM_EPS)
        logits_BTV: np.ndarray = normed_BTC @ wte_VC.T
        return logits_BTV

    return Workload(step, lambda logits_BTV: {"logits": logits_BTV})
