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
    arrays = cycle([(np.zeros_like(batch["b"]), batch["b"].copy()) for batch in data.batches])

    def step() -> np.ndarray:
        a, b = next(arrays)
        np.copyto(a, b)
        return a

    return Workload(step, lambda a: {"a": a})
