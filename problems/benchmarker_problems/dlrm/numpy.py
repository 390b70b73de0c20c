"""DLRM in NumPy: the functions of the reference, on BLAS, in the type of the weights."""

from itertools import cycle

import numpy as np

from benchmarker import Data, Support, Workload, hookimpl
from benchmarker_problems.dlrm import DlrmParams
from benchmarker_problems.dlrm.reference import TABLES, forward


@hookimpl
def describe_workload() -> Support:
    """Return the types that BLAS supports."""
    return Support({"inference": ("fp64", "fp32")})


@hookimpl
def build_workload(params: DlrmParams, data: Data) -> Workload:
    """Build a step: the logits of one batch."""
    dtype = data.weights[TABLES].dtype
    batches = cycle([(batch["dense"].astype(dtype), batch["indices"]) for batch in data.batches])

    def step() -> np.ndarray:
        logits_B, _ = forward(data.weights, *next(batches), params)
        return logits_B

    return Workload(step, lambda logits_B: {"logits": logits_B})
