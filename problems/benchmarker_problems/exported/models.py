"""Exported models without convolutions."""

from benchmarker import Support, hookimpl
from benchmarker_problems.exported import build_workload as build_workload


@hookimpl
def describe_workload() -> Support:
    """Return the types of weights and of products."""
    return Support({"inference": ("fp32", "bf16", "int8_dynamic", "mixed_bf16")})
