"""DLRM in NumPy: the functions of the reference, on BLAS, in the type of the weights."""

from benchmarker import Case, Data, Support, Workload, hookimpl
from benchmarker_problems.dlrm import Dlrm
from benchmarker_problems.steps.numpy import DONE, workload


@hookimpl
def describe_workload() -> Support:
    """Return the types that BLAS supports."""
    return Support(DONE)


@hookimpl
def build_workload(case: Case, problem: Dlrm, data: Data) -> Workload:
    """Build a step: the logits of one batch."""
    return workload(case, data, problem.step)
