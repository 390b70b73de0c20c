"""Stencil in PyTorch."""

from itertools import cycle

import torch
from torch import Tensor

from benchmarker import PRECISIONS, Case, Data, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.torch import DTYPES, TorchFramework, scope
from benchmarker_problems.stencil import CENTRE, INNER, NEIGHBOUR, neighbours


@hookimpl
def describe_workload() -> Support:
    """Return the types of scientific computing."""
    return Support({"inference": ("fp64", "fp32")})


def sweep(u_XYZ: Tensor, v_XYZ: Tensor) -> Tensor:
    """Write a sweep over `u_XYZ` to `v_XYZ`, which has the same boundary; TorchInductor fuses it to one pass."""
    with scope("sweep"):
        v_XYZ[INNER] = CENTRE * u_XYZ[INNER] + NEIGHBOUR * sum(neighbours(u_XYZ))
        return v_XYZ


def sweep_in_place(u_XYZ: Tensor, v_XYZ: Tensor) -> Tensor:
    """Do the same without temporary arrays, an addition at a time."""
    with scope("sweep"):
        first, second, *others = neighbours(u_XYZ)
        inner_XYZ = v_XYZ[INNER]
        torch.add(first, second, out=inner_XYZ)
        for each in others:
            inner_XYZ.add_(each)
        inner_XYZ.mul_(NEIGHBOUR).add_(u_XYZ[INNER], alpha=CENTRE)
        return v_XYZ


@hookimpl
def build_workload(framework: TorchFramework, case: Case, data: Data) -> Workload:
    """Build a step: one sweep, to the same array each time."""
    dtype = DTYPES[PRECISIONS[case.precision].parameter]
    batches = cycle([framework.put(batch["u"], dtype) for batch in data.batches])
    v_XYZ = framework.put(data.batches[0]["u"], dtype)
    function = framework.compiled(sweep, True) if case.compile else sweep_in_place

    def step() -> Tensor:
        return function(next(batches), v_XYZ)

    return Workload(step, lambda result_XYZ: {"v": result_XYZ.cpu().double().numpy()})
