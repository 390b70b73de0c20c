"""ONNX Runtime on the CPU, with models exported from PyTorch."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import onnxruntime
import torch
from torch import Tensor

from benchmarker import Device, Framework, FrameworkInfo, UserError, hookimpl
from benchmarker_plugins.frameworks.exporting import ExportingFramework, Run, exporters

PROVIDER = "CPUExecutionProvider"
_ERRORS_ONLY = 3
"""Severity from which ONNX Runtime logs."""


@hookimpl
def describe_framework() -> FrameworkInfo:
    """Describe ONNX Runtime on the CPU; it has no products in bf16 there."""
    return FrameworkInfo(
        name="onnxruntime",
        version=onnxruntime.__version__,
        devices=(Device("cpu", f"CPU (ONNX Runtime {PROVIDER})", ("fp32",), count=None),),
        compile="always",
        libraries={"onnxruntime": onnxruntime.__version__, **exporters()},
        variables=("OMP_NUM_THREADS",),
        executions=("exported",),
    )


@hookimpl
def make_framework(threads: int | None) -> Framework:
    """Open ONNX Runtime with so many threads, by default as many as PyTorch would have."""
    if threads is not None:
        torch.set_num_threads(threads)
    return OnnxRuntime(torch.get_num_threads())


class OnnxRuntime(ExportingFramework):
    """Sessions of ONNX Runtime, with all of its optimisations of graphs."""

    def load(self, model: Path) -> tuple[int, Run]:
        """Load a model into a session."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.own_threads
        options.log_severity_level = _ERRORS_ONLY
        session = onnxruntime.InferenceSession(model, options, providers=[PROVIDER])
        if session.get_session_options().intra_op_num_threads != self.own_threads:
            raise UserError(f"ONNX Runtime does not compute with {self.own_threads} threads")
        names = [each.name for each in session.get_inputs()]

        def run(inputs: Sequence[Tensor]) -> list[Tensor]:
            feeds = {name: value.detach().numpy() for name, value in zip(names, inputs, strict=True)}
            return [torch.from_numpy(value) for value in session.run(None, feeds)]

        return len(names), run

    def settings(self) -> Mapping[str, str]:
        """Return which optimisations of graphs a session makes; products are in the type of their inputs."""
        return {"graph_optimization_level": str(onnxruntime.SessionOptions().graph_optimization_level)}
