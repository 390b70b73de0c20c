"""Mixture of experts in NumPy: the functions of the reference, on BLAS, one expert after the other."""

from functools import partial

from benchmarker import Case, Data, Support, Workload, hookimpl
from benchmarker_problems.moe import Moe
from benchmarker_problems.steps.numpy import DONE, workload


@hookimpl
def describe_workload() -> Support:
    """Return the types that BLAS supports; there is no fused attention, and no cache."""
    return Support(DONE, choices={"impl": ("einsum", "matmul"), "phase": ("none",)})


@hookimpl
def build_workload(problem: Moe, case: Case, data: Data) -> Workload:
    """Build a step: the logits of one batch."""
    return workload(case, data, "logits", partial(problem.forward, impl=problem.impl))
