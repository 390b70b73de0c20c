"""STREAM's copy in NumPy; a triad would take it two passes."""

from itertools import cycle

import numpy as np

from benchmarker import Data, Support, Workload, hookimpl


@hookimpl
def describe_workload() -> Support:
    """A copy."""
    return Support({"inference": ("fp64", "fp32")}, choices={"op": ("copy",)})


@hookimpl
def build_workload(data: Data) -> Workload:
    """A step copies one array over another, on one core."""
    batches = cycle([batch["b"].copy() for batch in data.batches])
    a = np.zeros_like(data.batches[0]["b"])

    def step() -> np.ndarray:
        np.copyto(a, next(batches))
        return a

    return Workload(step, lambda a: {"a": a})
