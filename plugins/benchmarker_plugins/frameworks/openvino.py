"""OpenVINO on the CPU, with models exported from PyTorch to ONNX."""

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarker import PRECISIONS, Device, Framework, FrameworkInfo, Profiling, StepMarker, UserError, hookimpl
from benchmarker_plugins.frameworks.exporting import ExportingFramework, Ran, Run, exporters, write_profile
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
def make_framework(precision: str, threads: int | None, profiling: Profiling) -> Framework:
    """Open OpenVINO in exactly the requested precision, by default with as many threads as PyTorch would have."""
    if threads is not None:
        torch.set_num_threads(threads)
    hint = _HINTS[PRECISIONS[precision].compute]
    return OpenVino(hint, torch.get_num_threads(), is_profiled=profiling != "no")


class OpenVino(ExportingFramework):
    """Compiled models of OpenVINO, whose products are computed in a type that is always stated."""

    def __init__(self, hint: Any, threads: int, *, is_profiled: bool) -> None:
        super().__init__(threads)
        self.counters: _Counters | None = None
        self.core = openvino.Core()
        self.core.set_property(
            "CPU",
            {
                "INFERENCE_PRECISION_HINT": hint,
                "INFERENCE_NUM_THREADS": threads,
                "PERFORMANCE_HINT": "LATENCY",
                "PERF_COUNT": is_profiled,
            },
        )

    def load(self, model: Path, scopes: Mapping[str, Entered]) -> tuple[int, Run]:
        """Compile a model."""
        compiled = self.core.compile_model(model, "CPU")
        if (threads := compiled.get_property("INFERENCE_NUM_THREADS")) != self.own_threads:
            raise UserError(f"OpenVINO computes with {threads} threads, not {self.own_threads}")
        request = compiled.create_infer_request()
        outputs = range(len(compiled.outputs))
        self.counters = counters = _Counters(compiled, request, scopes)

        def run(inputs: Sequence[Tensor]) -> list[Tensor]:
            counters.runs += 1
            request.infer(dict(enumerate(map(_given, inputs))), share_outputs=True)
            return [_tensor(request.get_output_tensor(number)) for number in outputs]

        return len(compiled.inputs), run

    def settings(self) -> Mapping[str, str]:
        """Return the type in which products are computed, and what OpenVINO optimises for."""
        names = ("INFERENCE_PRECISION_HINT", "PERFORMANCE_HINT")
        return {name: str(self.core.get_property("CPU", name)) for name in names}

    @contextmanager
    def profile(self, folder: Path) -> Iterator[StepMarker]:
        """Write the mean step, as often as there are steps: nodes have mean times, and run one after the other.

        OpenVINO does not say when a node ran. What is left of the step is after the last of them.
        """
        durations_us: dict[int, float] = {}

        @contextmanager
        def mark(number: int) -> Iterator[None]:
            begin_ns = time.perf_counter_ns()
            yield
            durations_us[number] = (time.perf_counter_ns() - begin_ns) / 1e3

        assert self.counters is not None
        runs, before_us = self.counters.runs, self.counters.totals_us()
        yield mark
        steps, after_us = self.counters.runs - runs, self.counters.totals_us()
        scopes = self.counters.scopes()
        means = [
            (f"openvino::{kind}", mean_us, scopes.get(name))
            for name, (kind, total_us) in after_us.items()
            if (mean_us := (total_us - before_us[name][1]) / steps) > 0
        ]
        step_us = max(sum(durations_us.values()) / steps, sum(mean_us for _, mean_us, _ in means))
        write_profile(folder, [_step(number, at * step_us, step_us, means) for at, number in enumerate(durations_us)])


class _Counters:
    """Times of the nodes of a compiled model, and the scopes that they are in; `runs` is how often it ran."""

    def __init__(self, compiled: Any, request: Any, scopes: Mapping[str, Entered]) -> None:
        self.compiled, self.request, self.known = compiled, request, scopes
        self.runs = 0

    def totals_us(self) -> dict[str, tuple[str, float]]:
        """Return type and time of each node in all runs, in order: OpenVINO counts the mean, in whole µs."""
        found = self.request.get_profiling_info()
        return {
            each.node_name: (each.node_type, self.runs * each.real_time / timedelta(microseconds=1)) for each in found
        }

    def scopes(self) -> dict[str, Entered]:
        """Return the scope of each node that is in one: that of the first of those that were fused into it.

        A node that is none of the exported ones is in the scope of those that take its results, if that is one.
        """
        found: dict[str, Entered] = {}
        for node in reversed(self.compiled.get_runtime_model().get_ordered_ops()):
            name, fused = node.get_friendly_name(), node.get_rt_info()["originalLayersNames"].astype(str).split(",")
            own = [self.known[each] for each in (name, *fused) if each in self.known]
            taken = [to.get_node().get_friendly_name() for each in node.outputs() for to in each.get_target_inputs()]
            takers = {found.get(taker) for taker in taken}
            scope = own[0] if own else takers.pop() if len(takers) == 1 else None
            if scope:
                found[name] = scope
        return found


def _step(
    number: int, begin_us: float, step_us: float, means: Sequence[tuple[str, float, Entered | None]]
) -> tuple[Ran, list[Ran]]:
    """Return a step, and its nodes one after the other: each has a name, a time and a scope."""
    nodes, end_us = [], begin_us
    for name, mean_us, scope in means:
        nodes.append(Ran(name, end_us, end_us := end_us + mean_us, scope))
    return Ran(f"ProfilerStep#{number}", begin_us, begin_us + step_us), nodes


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
