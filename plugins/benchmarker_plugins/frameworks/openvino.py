"""OpenVINO on the CPU, with models exported from PyTorch to ONNX."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarker import PRECISIONS, Device, Framework, FrameworkInfo, UserError, hookimpl
from benchmarker_plugins.frameworks.exporting import ExportingFramework, Run, exporters
from benchmarker_plugins.frameworks.torch import Entered

# Without this module, OpenVINO does not send statistics of its use over the network, by a process beside the measured.
sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]
import openvino  # noqa: E402

_HINTS = {"fp32": openvino.Type.f32, "bf16": openvino.Type.bf16}
"""What OpenVINO calls the type that products are computed in."""
_BITS = {torch.bfloat16: (torch.int16, openvino.Type.bf16)}
"""Types that NumPy does not have: a type with as many bits, and OpenVINO's name."""


@hookimpl
def describe_framework() -> FrameworkInfo:
    """Describe OpenVINO on the CPU; it computes in bf16 where the processor does."""
    core = openvino.Core()
    has_bf16 = "BF16" in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    precisions = ("fp32", "bf16", "mixed_bf16") if has_bf16 else ("fp32",)
    version = openvino.__version__.partition("-")[0]
    name = core.get_property("CPU", "FULL_DEVICE_NAME").strip()
    return FrameworkInfo(
        name="openvino",
        version=version,
        devices=(Device("cpu", f"CPU (OpenVINO, {name})", precisions, count=None),),
        compile="always",
        libraries={"openvino": version, **exporters()},
        executions=("exported",),
    )


@hookimpl
def make_framework(precision: str, threads: int | None) -> Framework:
    """Open OpenVINO in exactly the requested precision, by default with as many threads as PyTorch would have."""
    if threads is not None:
        torch.set_num_threads(threads)
    return OpenVino(_HINTS[PRECISIONS[precision].compute], torch.get_num_threads())


class OpenVino(ExportingFramework):
    """Compiled models of OpenVINO, whose products are computed in a type that is always stated."""

    def __init__(self, hint: Any, threads: int) -> None:
        super().__init__(threads)
        self.core = openvino.Core()
        self.core.set_property(
            "CPU",
            {"INFERENCE_PRECISION_HINT": hint, "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"},
        )

    def load(self, model: Path, scopes: Mapping[str, Entered]) -> tuple[int, Run]:
        """Compile a model."""
        compiled = self.core.compile_model(model, "CPU")
        if (threads := compiled.get_property("INFERENCE_NUM_THREADS")) != self.own_threads:
            raise UserError(f"OpenVINO computes with {threads} threads, not {self.own_threads}")
        request = compiled.create_infer_request()
        outputs = range(len(compiled.outputs))

        def run(inputs: Sequence[Tensor]) -> list[Tensor]:
            request.infer(dict(enumerate(map(_given, inputs))), share_outputs=True)
            return [_tensor(request.get_output_tensor(number)) for number in outputs]

        return len(compiled.inputs), run

    def settings(self) -> Mapping[str, str]:
        """Return the type in which products are computed, and what OpenVINO optimises for."""
        names = ("INFERENCE_PRECISION_HINT", "PERFORMANCE_HINT")
        return {name: str(self.core.get_property("CPU", name)) for name in names}


def _given(value: Tensor) -> openvino.Tensor:
    """Return a tensor of OpenVINO in the memory of one of PyTorch."""
    value = value.detach()
    if value.dtype in _BITS:
        bits, kind = _BITS[value.dtype]
        return openvino.Tensor(value.view(bits).numpy(), openvino.Shape(value.shape), kind)
    return openvino.Tensor(value.numpy(), shared_memory=True)


def _tensor(value: openvino.Tensor) -> Tensor:
    """Return a tensor of PyTorch in the memory of one of OpenVINO."""
    for dtype, (bits, kind) in _BITS.items():
        if value.element_type == kind:
            return torch.from_numpy(value.data.view(str(bits).removeprefix("torch."))).view(dtype)
    return torch.from_numpy(value.data)
