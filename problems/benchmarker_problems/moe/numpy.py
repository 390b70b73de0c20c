"""Mixture of experts in NumPy: the functions of the reference, on BLAS, one expert after the other."""

from benchmarker import Data, Support, Workload, hookimpl
from benchmarker_problems.decoder.numpy import SUPPORT, build
from benchmarker_problems.moe import Moe, MoeParams


@hookimpl
def describe_workload() -> Support:
    """Return the types that BLAS supports; there is no fused attention."""
    return SUPPORT


@hookimpl
def build_workload(problem: Moe, params: MoeParams, data: Data) -> Workload:
    """Build a step: the logits of one batch."""
    return build(problem, params, data)
