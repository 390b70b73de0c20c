"""ViT in NumPy: the functions of the reference, on BLAS, in the type of the weights."""

from functools import partial

from benchmarker import Case, Data, Support, Workload, hookimpl
from benchmarker_problems.steps.numpy import DONE, workload
from benchmarker_problems.vit import Vit


@hookimpl
def describe_workload() -> Support:
    """Return the types that BLAS supports; there is no fused attention."""
    return Support(DONE, choices={"impl": ("einsum", "matmul")})


@hookimpl
def build_workload(case: Case, problem: Vit, data: Data) -> Workload:
    """Build a step: the logits of one batch."""
    return workload(case, data, "logits", partial(problem.forward, impl=problem.impl))
