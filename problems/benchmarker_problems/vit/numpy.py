"""ViT in NumPy: the functions of the reference, on BLAS, in the type of the weights."""

from itertools import cycle

import numpy as np

from benchmarker import Data, Support, Workload, hookimpl
from benchmarker_problems.vit import VitParams
from benchmarker_problems.vit.reference import forward


@hookimpl
def describe_workload() -> Support:
    """Return the types that BLAS supports; there is no fused attention."""
    return Support({"inference": ("fp64", "fp32")}, choices={"impl": ("einsum", "matmul")})


@hookimpl
def build_workload(params: VitParams, data: Data) -> Workload:
    """Build a step: the logits of one batch."""
    batches = cycle(data.batches)

    def step() -> np.ndarray:
        logits_BK, _ = forward(data.weights, next(batches)["images"], params, params.impl)
        return logits_BK

    return Workload(step, lambda logits_BK: {"logits": logits_BK})
