"""A decoder like Llama in NumPy: the functions of the reference, on BLAS, in the type of the weights."""

from itertools import cycle

import numpy as np

from benchmarker import Data, Support, Workload
from benchmarker_problems.decoder import Decoder, DecoderParams
from benchmarker_problems.decoder.reference import forward

SUPPORT = Support({"inference": ("fp64", "fp32")}, choices={"impl": ("einsum", "matmul"), "phase": ("none",)})
"""The types that BLAS supports; there is no fused attention, and no cache."""


def build(problem: Decoder, params: DecoderParams, data: Data) -> Workload:
    """Build a step: the logits of one batch."""
    batches = cycle(data.batches)

    def step() -> np.ndarray:
        logits_BTV, _ = forward(data.weights, next(batches)["tokens"], params, problem.mlp_reference, params.impl)
        return logits_BTV

    return Workload(step, lambda logits_BTV: {"logits": logits_BTV})
