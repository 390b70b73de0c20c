"""Runtimes of exported models: the implementations in PyTorch, as ONNX, on the CPU.

A step that PyTorch would compile is exported instead, when it first runs: that is its compilation. Inputs are given to
the runtime in the memory of PyTorch's tensors, and results are read in that of the runtime.
"""

import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.fx.traceback import preserve_node_meta
from torch.utils import _pytree as trees

from benchmarker import Framework, StepMarker, UserError, scratch
from benchmarker_plugins.frameworks.torch import SCOPE, Entered, TorchFramework

_P = ParamSpec("_P")
_T = TypeVar("_T")

Run = Callable[[Sequence[Tensor]], list[Tensor]]
"""Runs an exported model on its inputs, in order; the results may last only until it runs again."""
EXPORTERS = ("torch", "onnx", "onnxscript")
"""Distributions that export a model."""


def exporters() -> dict[str, str]:
    """Return the versions of what exports a model."""
    return {name: metadata.version(name) for name in EXPORTERS}


class _Exported(nn.Module):
    """A function as the module that the exporter needs."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        """Return the function's result."""
        return self.function(*args)


def _scopes(program: torch.onnx.ONNXProgram) -> dict[str, Entered]:
    """Return the scope of each node and of each of its results, by their names; of those that are in one."""
    found: dict[str, Entered] = {}
    for node in program.model.graph:
        source = node.meta.get("node")
        if source is not None and (scope := source.meta.get("custom", {}).get(SCOPE)):
            found |= dict.fromkeys([str(node.name), *(str(value.name) for value in node.outputs)], scope)
    return found


class ExportingFramework(TorchFramework):
    """Steps of PyTorch that a runtime executes, with so many threads."""

    def __init__(self, threads: int) -> None:
        super().__init__(torch.device("cpu"))
        self.own_threads = threads
        self.exports = 0

    @abstractmethod
    def load(self, model: Path, scopes: Mapping[str, Entered]) -> tuple[int, Run]:
        """Load a model in ONNX, and return how many inputs it has, and what runs it; its file is then deleted.

        `scopes` has those of its nodes and of their results, by name.
        """

    def compiled(self, function: Callable[_P, _T], asked: bool) -> Callable[_P, _T]:
        """Return the function as the runtime runs it; its shapes must not change."""
        self.exports += 1
        run: Run | None = None
        structure: trees.TreeSpec | None = None

        def step(*args: Any) -> Any:
            nonlocal run, structure
            leaves = trees.tree_leaves(args)
            if run is None or structure is None:
                run, structure = self._exported(function, args, len(leaves))
            return trees.tree_unflatten(run(leaves), structure)

        return cast("Callable[_P, _T]", step)

    def _exported(self, function: Callable[..., Any], args: tuple[Any, ...], inputs: int) -> tuple[Run, trees.TreeSpec]:
        with torch.no_grad(), warnings.catch_warnings(), scratch() as folder:
            warnings.simplefilter("ignore")
            structure = trees.tree_structure(function(*args))
            with preserve_node_meta():
                program = torch.onnx.export(_Exported(function).eval(), args, dynamo=True, verbose=False)
            assert program is not None
            program.save(folder / "model.onnx", external_data=True)
            kept, run = self.load(folder / "model.onnx", _scopes(program))
        if kept != inputs:
            raise UserError(f"the exported model has {kept} of {inputs} inputs: the others do not affect its result")
        return run, structure

    def threads(self) -> int:
        """Return the number of threads that models are loaded with; `load` checks that the runtime has as many."""
        return self.own_threads

    @contextmanager
    def profile(self, folder: Path) -> Iterator[StepMarker]:
        """Raise `UserError`: PyTorch's profiler does not see what a runtime does."""
        with Framework.profile(self, folder) as marker:
            yield marker
