"""Exported steps on given arrays."""

from benchmarker import Support, hookimpl
from benchmarker_problems.exported import build_workload as build_workload


@hookimpl
def describe_workload() -> Support:
    """Return the types in which arrays are given."""
    return Support({"inference": ("fp32", "bf16")})
