"""LSTM in NumPy: the function of the reference, on BLAS, in the type of the weights."""

from itertools import cycle

import numpy as np

from benchmarker import Data, Support, Workload, hookimpl
from benchmarker_problems.lstm import LstmParams
from benchmarker_problems.lstm.reference import forward


@hookimpl
def describe_workload() -> Support:
    """Return the types that BLAS supports."""
    return Support({"inference": ("fp64", "fp32")})


@hookimpl
def build_workload(params: LstmParams, data: Data) -> Workload:
    """Build a step: the outputs of one batch."""
    batches = cycle(data.batches)

    def step() -> np.ndarray:
        out_TBH, _ = forward(data.weights, next(batches)["x"], params.layers)
        return out_TBH

    return Workload(step, lambda out_TBH: {"out": out_TBH})
