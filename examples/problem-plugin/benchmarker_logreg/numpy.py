"""Logistic regression in NumPy: the step of the reference, on BLAS, in the type of the weights."""

from benchmarker import Case, Data, Support, Workload, hookimpl
from benchmarker_logreg import Logreg
from benchmarker_problems.steps.numpy import workload


@hookimpl
def describe_workload() -> Support:
    """Return the types that BLAS supports."""
    return Support({"inference": ("fp64", "fp32"), "training": ("fp64", "fp32")})


@hookimpl
def build_workload(case: Case, problem: Logreg, data: Data) -> Workload:
    """Build the step of the reference, on the next batch."""
    return workload(case, data, problem.step)
