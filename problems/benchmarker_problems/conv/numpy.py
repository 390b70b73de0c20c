"""Convolution in NumPy: the function of the reference, a copy of the patches and one product for each group."""

from benchmarker import Support, hookimpl
from benchmarker_problems.steps.numpy import DONE, build_workload

__all__ = ["build_workload", "describe_workload"]


@hookimpl
def describe_workload() -> Support:
    """Return the types that BLAS supports, with the channels last."""
    return Support(DONE, choices={"layout": ("channels_last",)})
