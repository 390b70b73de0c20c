"""Llama in NumPy: the functions of the reference, on BLAS, in the type of the weights."""

from itertools import cycle

import numpy as np

from benchmarker import Data, Support, Workload, hookimpl
from benchmarker_problems.llama import LlamaParams
from benchmarker_problems.llama.reference import forward


@hookimpl
def describe_workload() -> Support:
    """Return the types that BLAS supports; there is no fused attention."""
    return Support({"inference": ("fp64", "fp32")}, choices={"impl": ("einsum", "matmul")})


@hookimpl
def build_workload(params: LlamaParams, data: Data) -> Workload:
    """Build a step: the logits of one batch."""
    batches = cycle(data.batches)

    def step() -> np.ndarray:
        logits_BTV, _ = forward(data.weights, next(batches)["tokens"], params, params.impl)
        return logits_BTV

    return Workload(step, lambda logits_BTV: {"logits": logits_BTV})
