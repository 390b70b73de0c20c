"""Exported models with convolutions."""

from benchmarker import Support, hookimpl
from benchmarker_problems.exported import build_workload as build_workload


@hookimpl
def describe_workload() -> Support:
    """Return the types of products; ONNX has no convolution of bf16 that OpenVINO reads."""
    return Support({"inference": ("fp32", "mixed_bf16")})
