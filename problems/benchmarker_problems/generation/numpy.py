"""Decoders in NumPy: whole sequences by the functions of the reference."""

from benchmarker import Support, hookimpl
from benchmarker_problems.layers.numpy import build_workload
from benchmarker_problems.steps.numpy import DONE

__all__ = ["build_workload", "describe_workload"]


@hookimpl
def describe_workload() -> Support:
    """Return the types that BLAS supports; there is no fused attention, and no cache."""
    return Support(DONE, choices={"impl": ("einsum", "matmul"), "phase": ("none",)})
