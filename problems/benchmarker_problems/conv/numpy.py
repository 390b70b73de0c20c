"""Convolution in NumPy: the function of the reference, a copy of the patches and one product for each group."""

from itertools import cycle

import numpy as np

from benchmarker import Data, Support, Workload, hookimpl
from benchmarker_problems.conv import ConvParams
from benchmarker_problems.conv.reference import convolve


@hookimpl
def describe_workload() -> Support:
    """Return the types that BLAS supports, with the channels last."""
    return Support({"inference": ("fp64", "fp32")}, choices={"layout": ("channels_last",)})


@hookimpl
def build_workload(params: ConvParams, data: Data) -> Workload:
    """Build a step: one convolution."""
    p, batches = params, cycle(data.batches)

    def step() -> np.ndarray:
        batch = next(batches)
        out_BYO, _ = convolve(batch["x"], batch["w"], p.stride, p.padding, p.dilation, p.groups)
        return out_BYO

    return Workload(step, lambda out_BYO: {"out": out_BYO})
