"""Mixture of experts in NumPy: the functions of the reference, on BLAS, one expert after the other."""

from itertools import cycle

import numpy as np

from benchmarker import Data, Support, Workload, hookimpl
from benchmarker_problems.moe import MoeParams
from benchmarker_problems.moe.reference import forward


@hookimpl
def describe_workload() -> Support:
    """Return the types that BLAS supports; there is no fused attention."""
    return Support({"inference": ("fp64", "fp32")}, choices={"impl": ("einsum", "matmul")})


@hookimpl
def build_workload(params: MoeParams, data: Data) -> Workload:
    """Build a step: the logits of one batch."""
    batches = cycle(data.batches)

    def step() -> np.ndarray:
        logits_BTV, _ = forward(data.weights, next(batches)["tokens"], params, params.impl)
        return logits_BTV

    return Workload(step, lambda logits_BTV: {"logits": logits_BTV})
