"""Convolution in NumPy: the function of the reference, a copy of the patches and one product for each group."""

from benchmarker import Case, Data, Support, Workload, hookimpl
from benchmarker_problems.conv import Conv
from benchmarker_problems.steps.numpy import DONE, workload


@hookimpl
def describe_workload() -> Support:
    """Return the types that BLAS supports, with the channels last."""
    return Support(DONE, choices={"layout": ("channels_last",)})


@hookimpl
def build_workload(case: Case, problem: Conv, data: Data) -> Workload:
    """Build a step: one convolution."""
    return workload(case, data, problem.step)
