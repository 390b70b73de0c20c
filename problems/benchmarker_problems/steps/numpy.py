"""Steps in NumPy: inference by the functions of the reference, on BLAS, in the type of the case."""

from collections.abc import Callable, Mapping
from itertools import cycle

import numpy as np

from benchmarker import Case, Data, Mode, Workload
from benchmarker_problems.steps.reference import Batch, Weights

DONE: Mapping[Mode, tuple[str, ...]] = {"inference": ("fp64", "fp32")}
"""Precisions that BLAS supports."""


def workload(
    case: Case, data: Data, output: str, forward: Callable[[Weights, Batch], tuple[np.ndarray, object]]
) -> Workload:
    """Return the workload that computes the output of the next batch.

    `forward` takes the weights and the arrays of a batch by name, and returns the output and its pullback.
    """
    dtype = np.float64 if case.precision == "fp64" else np.float32
    batches = cycle(
        [
            {
                name: value.astype(dtype, copy=False) if np.issubdtype(value.dtype, np.floating) else value
                for name, value in batch.items()
            }
            for batch in data.batches
        ]
    )

    def step() -> np.ndarray:
        result, _ = forward(data.weights, next(batches))
        return result

    return Workload(step, lambda result: {output: result})
