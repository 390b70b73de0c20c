"""Llama in NumPy: the functions of the reference, on BLAS, in the type of the weights."""

from benchmarker import Data, Support, Workload, hookimpl
from benchmarker_problems.decoder.numpy import SUPPORT, build
from benchmarker_problems.llama import Llama, LlamaParams


@hookimpl
def describe_workload() -> Support:
    """Return the types that BLAS supports; there is no fused attention."""
    return SUPPORT


@hookimpl
def build_workload(problem: Llama, params: LlamaParams, data: Data) -> Workload:
    """Build a step: the logits of one batch."""
    return build(problem, params, data)
