"""BERT in NumPy: the functions of the reference, on BLAS, in the type of the weights."""

from itertools import cycle

import numpy as np

from benchmarker import Data, Support, Workload, hookimpl
from benchmarker_problems.bert import BertParams
from benchmarker_problems.bert.reference import forward


@hookimpl
def describe_workload() -> Support:
    """Return the types that BLAS supports; there is no fused attention."""
    return Support({"inference": ("fp64", "fp32")}, choices={"impl": ("einsum", "matmul")})


@hookimpl
def build_workload(params: BertParams, data: Data) -> Workload:
    """Build a step: the logits of one batch."""
    batches = cycle(data.batches)

    def step() -> np.ndarray:
        batch = next(batches)
        logits_V, _ = forward(data.weights, batch["tokens"], batch["masked"], params, params.impl)
        return logits_V

    return Workload(step, lambda logits_V: {"logits": logits_V})
