"""Logistic regression in NumPy: the functions of the reference, on BLAS, in the type of the weights."""

from itertools import cycle

import numpy as np

from benchmarker import Case, Data, Support, Workload, hookimpl
from benchmarker_logreg import descend, probabilities


@hookimpl
def describe_workload() -> Support:
    """Return the types that BLAS supports."""
    return Support({"inference": ("fp64", "fp32"), "training": ("fp64", "fp32")})


@hookimpl
def build_workload(case: Case, data: Data) -> Workload:
    """Build a step: the probabilities or the loss of one batch; training updates a copy of the weights."""
    batches = cycle(data.batches)
    weights = {name: weight.copy() for name, weight in data.weights.items()}

    def inference() -> np.ndarray:
        return probabilities(weights, next(batches)["x"])

    def training() -> np.ndarray:
        batch = next(batches)
        return descend(weights, batch["x"], batch["labels"])

    if case.mode == "training":
        return Workload(training, lambda loss: {"loss": loss})
    return Workload(inference, lambda result_BC: {"probabilities": result_BC})
