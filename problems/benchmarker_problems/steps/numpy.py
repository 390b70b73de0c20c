"""Steps in NumPy: those of the reference, on BLAS, in the type of the case."""

from collections.abc import Callable, Mapping
from itertools import cycle

import numpy as np

from benchmarker import Arrays, Case, Data, Mode, Problem, Support, Workload, hookimpl

DONE: Mapping[Mode, tuple[str, ...]] = {"inference": ("fp64", "fp32")}
"""Precisions that BLAS supports."""


@hookimpl
def describe_workload() -> Support:
    """Return the types that BLAS supports."""
    return Support(DONE)


@hookimpl
def build_workload(case: Case, problem: Problem, data: Data) -> Workload:
    """Build a step: that of the problem."""
    return workload(case, data, problem.step)


def workload(case: Case, data: Data, step: Callable[[Arrays, Arrays, Mode], Arrays]) -> Workload:
    """Return the workload that takes a step, such as `Problem.step`, with the next batch.

    Training changes a copy of the weights.
    """
    dtype = np.float64 if case.precision == "fp64" else np.float32
    weights = {name: weight.copy() if case.mode == "training" else weight for name, weight in data.weights.items()}
    batches = cycle(
        [
            {
                name: value.astype(dtype, copy=False) if np.issubdtype(value.dtype, np.floating) else value
                for name, value in batch.items()
            }
            for batch in data.batches
        ]
    )
    return Workload(lambda: step(weights, next(batches), case.mode), lambda outputs: outputs)
