"""STREAM's copy in NumPy; there is no triad, because NumPy would need two passes for it."""

from itertools import cycle

import numpy as np

from benchmarker import Data, Support, Workload, hookimpl


@hookimpl
def describe_workload() -> Support:
    """Return the precisions; only the copy is supported."""
    return Support({"inference": ("fp64", "fp32")}, choices={"op": ("copy",)})


@hookimpl
def build_workload(data: Data) -> Workload:
    """Build a step: copy one array to another, on one core."""
    batches = cycle([batch["b"].copy() for batch in data.batches])
    a = np.zeros_like(data.batches[0]["b"])

    def step() -> np.ndarray:
        np.copyto(a, next(batches))
        return a

    return Workload(step, lambda a: {"a": a})
