"""DiT in NumPy: the functions of the reference, on BLAS, in the type of the weights."""

from itertools import cycle

import numpy as np

from benchmarker import Data, Support, Workload, hookimpl
from benchmarker_problems.dit import DitParams
from benchmarker_problems.dit.reference import forward


@hookimpl
def describe_workload() -> Support:
    """Return the types that BLAS supports; there is no fused attention."""
    return Support({"inference": ("fp64", "fp32")}, choices={"impl": ("einsum", "matmul")})


@hookimpl
def build_workload(params: DitParams, data: Data) -> Workload:
    """Build a step: the prediction for one batch."""
    batches = cycle(data.batches)

    def step() -> np.ndarray:
        prediction_BHWE, _ = forward(data.weights, next(batches), params, params.impl)
        return prediction_BHWE

    return Workload(step, lambda prediction_BHWE: {"prediction": prediction_BHWE})
