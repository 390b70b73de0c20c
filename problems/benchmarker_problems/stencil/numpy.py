"""Stencil in NumPy: plane by plane, so that sums stay in the cache."""

import numpy as np

from benchmarker import Case, Data, Support, Workload, hookimpl
from benchmarker_problems.stencil import CENTRE, NEIGHBOUR
from benchmarker_problems.steps.numpy import DONE, workload


@hookimpl
def describe_workload() -> Support:
    """Return the types of scientific computing."""
    return Support(DONE)


def sweep(u_XYZ: np.ndarray, v_XYZ: np.ndarray) -> np.ndarray:
    """Write a sweep over `u_XYZ` to `v_XYZ`, which has the same boundary."""
    sum_YZ, own_YZ = np.empty_like(u_XYZ[0, 1:-1, 1:-1]), np.empty_like(u_XYZ[0, 1:-1, 1:-1])
    for x in range(1, len(u_XYZ) - 1):
        plane_YZ = u_XYZ[x]
        np.add(u_XYZ[x - 1, 1:-1, 1:-1], u_XYZ[x + 1, 1:-1, 1:-1], out=sum_YZ)
        sum_YZ += plane_YZ[:-2, 1:-1]
        sum_YZ += plane_YZ[2:, 1:-1]
        sum_YZ += plane_YZ[1:-1, :-2]
        sum_YZ += plane_YZ[1:-1, 2:]
        sum_YZ *= NEIGHBOUR
        np.multiply(plane_YZ[1:-1, 1:-1], CENTRE, out=own_YZ)
        np.add(sum_YZ, own_YZ, out=v_XYZ[x, 1:-1, 1:-1])
    return v_XYZ


@hookimpl
def build_workload(case: Case, data: Data) -> Workload:
    """Build a step: one sweep on one core, to the same array each time."""
    v_XYZ = data.batches[0]["u"].copy()
    return workload(case, data, lambda _, batch, __: {"v": sweep(batch["u"], v_XYZ)})
