"""ONNX Runtime on the CPU, with models exported from PyTorch."""

import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import accumulate
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import onnx
import onnxruntime
import torch
from onnxruntime.quantization import QuantType, quantize_dynamic
from torch import Tensor

from benchmarker import PRECISIONS, Device, Framework, FrameworkInfo, Profiling, StepMarker, UserError, hookimpl
from benchmarker_plugins.frameworks.exporting import ExportingFramework, Ran, Run, exporters, write_profile
from benchmarker_plugins.frameworks.torch import Entered

PROVIDER = "CPUExecutionProvider"
_ERRORS_ONLY = 3
"""Severity from which ONNX Runtime logs."""
_KERNEL = "_kernel_time"
"""How the name of an event ends, which begins with that of its node."""
_OF_BLOCKS = "_nchwc"
"""How the name of a convolution on blocks of channels ends, which begins with that of its result."""


@hookimpl
def describe_framework() -> FrameworkInfo:
    """Describe ONNX Runtime on the CPU; it has no products in bf16 there.

    Products of int8 saturate on x86 processors that cannot add four of them at once (VNNI).
    """
    is_exact = platform.machine() != "x86_64" or torch.cpu._is_vnni_supported()
    precisions = ("fp32", "int8_dynamic") if is_exact else ("fp32",)
    return FrameworkInfo(
        name="onnxruntime",
        version=onnxruntime.__version__,
        devices=(Device("cpu", f"CPU (ONNX Runtime {PROVIDER})", precisions, count=None),),
        compile="always",
        libraries={"onnxruntime": onnxruntime.__version__, **exporters()},
        variables=("OMP_NUM_THREADS",),
        executions=("exported",),
    )


@hookimpl
def make_framework(precision: str, threads: int | None, profiling: Profiling) -> Framework:
    """Open ONNX Runtime with so many threads, by default as many as PyTorch would have."""
    if threads is not None:
        torch.set_num_threads(threads)
    return OnnxRuntime(
        torch.get_num_threads(), quantizes=PRECISIONS[precision].quantizes, is_profiled=profiling != "no"
    )


class OnnxRuntime(ExportingFramework):
    """Sessions of ONNX Runtime, with all of its optimisations of graphs; if it `quantizes`, of quantised models."""

    def __init__(self, threads: int, *, quantizes: bool, is_profiled: bool) -> None:
        super().__init__(threads)
        self.quantizes = quantizes
        self.folder = TemporaryDirectory() if is_profiled else None
        self.session: Any = None
        self.scopes: Mapping[str, Sequence[Entered | None]] = {}

    def load(self, model: Path, scopes: Mapping[str, Entered]) -> tuple[int, Run]:
        """Load a model into a session.

        A quantised one has weights in int8 with a scale for each output, and quantises what it multiplies with them
        to 8 bits, with a scale and a zero point for each tensor.
        """
        if self.quantizes:
            model, full = model.with_name("quantized.onnx"), model
            quantize_dynamic(
                full,
                model,
                op_types_to_quantize=["MatMul"],
                per_channel=True,
                weight_type=QuantType.QInt8,
                use_external_data_format=True,
            )
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.own_threads
        options.log_severity_level = _ERRORS_ONLY
        if self.folder:
            options.enable_profiling = True
            options.execution_order = onnxruntime.ExecutionOrder.PRIORITY_BASED  # that of the model: scopes do not mix
            options.profile_file_prefix = str(Path(self.folder.name, "session"))
            options.optimized_model_filepath = str(optimised := Path(self.folder.name, "optimised.onnx"))
            options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "weights")
        session = onnxruntime.InferenceSession(model, options, providers=[PROVIDER])
        if session.get_session_options().intra_op_num_threads != self.own_threads:
            raise UserError(f"ONNX Runtime does not compute with {self.own_threads} threads")
        names = [each.name for each in session.get_inputs()]
        self.session = session
        if self.folder:
            self.scopes = _scopes(optimised, scopes)

        def run(inputs: Sequence[Tensor]) -> list[Tensor]:
            feeds = {name: value.detach().numpy() for name, value in zip(names, inputs, strict=True)}
            return [torch.from_numpy(value) for value in session.run(None, feeds)]

        return len(names), run

    def settings(self) -> Mapping[str, str]:
        """Return how a session optimises graphs, and whether products of weights are in int8; others are in fp32."""
        level = onnxruntime.SessionOptions().graph_optimization_level
        return {"graph_optimization_level": str(level), "quantize_dynamic": str(self.quantizes)}

    @contextmanager
    def profile(self, folder: Path) -> Iterator[StepMarker]:
        """Run the session's own profiler, and write its nodes as ops, within their scopes and steps."""
        numbers: list[int] = []

        def mark(number: int) -> AbstractContextManager[object]:
            numbers.append(number)
            return nullcontext()

        yield mark
        events = json.loads(Path(self.session.end_profiling()).read_bytes())
        assert self.folder is not None
        self.folder.cleanup()
        runs = [event for event in events if event["name"] == "model_run"][-len(numbers) :]
        nodes = [event for event in events if event.get("cat") == "Node" and event["ts"] >= runs[0]["ts"]]
        steps = []
        for number, run in zip(numbers, runs, strict=True):
            of_run = sorted(
                (node for node in nodes if run["ts"] <= node["ts"] < run["ts"] + run["dur"]), key=itemgetter("ts")
            )
            ran = [
                _ran(f"onnx::{node['args']['op_name']}", node, scope)
                for scope, node in zip(self._entered(of_run), of_run, strict=True)
            ]
            steps.append((_ran(f"ProfilerStep#{number}", run), ran))
        write_profile(folder, steps)

    def _entered(self, ran: Sequence[Mapping[str, Any]]) -> list[Entered | None]:
        """Return the scope of each node that ran; one that is in none is in that which is both before and after it."""
        following = {name: iter(scopes) for name, scopes in self.scopes.items()}
        own = [next(following.get(node["name"].removesuffix(_KERNEL), iter(())), None) for node in ran]
        before, after = _latest(own), _latest(own[::-1])[::-1]
        return [one if one is other else each for each, one, other in zip(own, before, after, strict=True)]


def _latest(scopes: Sequence[Entered | None]) -> list[Entered | None]:
    """Return each scope, and instead of None the last one before it."""
    latest: Iterator[Entered | None] = accumulate(scopes, lambda last, each: each or last)
    return [*latest]


def _scopes(model: Path, scopes: Mapping[str, Entered]) -> dict[str, list[Entered | None]]:
    """Return the scopes of the nodes of each name in an optimised model, in order; None for a node that is in none.

    A node that several were fused into has the results of the last of them, or is named after it or its result. One
    that is none of the exported nodes is in the scope of those that take its results, if that is one.
    """
    nodes = onnx.load(model, load_external_data=False).graph.node
    of_taken: dict[str, set[Entered | None]] = {}
    own: list[Entered | None] = []
    for node in reversed(nodes):
        names = (*node.output, node.name.removesuffix(_OF_BLOCKS), node.name.partition("/")[0])
        takers = set[Entered | None]().union(*(of_taken.get(name, ()) for name in node.output))
        scope = next((scopes[name] for name in names if name in scopes), takers.pop() if len(takers) == 1 else None)
        own.append(scope)
        for name in node.input:
            of_taken.setdefault(name, set()).add(scope)
    found: dict[str, list[Entered | None]] = {}
    for node, scope in zip(nodes, reversed(own), strict=True):
        found.setdefault(node.name, []).append(scope)
    return found


def _ran(name: str, event: Mapping[str, Any], scope: Entered | None = None) -> Ran:
    return Ran(name, event["ts"], event["ts"] + event["dur"], scope)
