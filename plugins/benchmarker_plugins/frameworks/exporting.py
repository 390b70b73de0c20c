"""Runtimes of exported models: the implementations in PyTorch, as ONNX, on the CPU.

A step that PyTorch would compile is exported instead, when it first runs: that is its compilation. Inputs are given to
the runtime in the memory of PyTorch's tensors, and results are read in that of the runtime. A tensor of ONNX has its
axes in the order of memory: where PyTorch has another, such as with the channels last, the model transposes.
"""

import json
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from itertools import groupby
from pathlib import Path
from typing import Any, ParamSpec, Self, TypeVar, cast
from unittest.mock import patch

import torch
from onnxscript import rewriter
from onnxscript.rewriter.rules import common as rules
from torch import Tensor, nn
from torch.fx.traceback import preserve_node_meta
from torch.utils import _pytree as trees

from benchmarker import StepMarker, UserError, scratch
from benchmarker_plugins.frameworks.torch import SCOPE, Entered, TorchFramework

_P = ParamSpec("_P")
_T = TypeVar("_T")

Run = Callable[[Sequence[Tensor]], list[Tensor]]
"""Runs an exported model on its inputs, in order; the results may last only until it runs again."""
EXPORTERS = ("torch", "onnx", "onnxscript")
"""Distributions that export a model."""


_WRONG = (rules.one_reshape_matmul_reshape_rule, rules.two_reshapes_matmul_reshape_rule)
"""They drop reshapes around a product if the shapes without them broadcast to that of the result, also if its axes then
mean something else: attention with grouped queries is then wrong where batch, key-value heads and group are alike
(onnxscript 0.7.2).
"""


def exporters() -> dict[str, str]:
    """Return the versions of what exports a model."""
    return {name: metadata.version(name) for name in EXPORTERS}


@dataclass(frozen=True)
class _Tree:
    """Tensors as a function takes or returns them, and the axes of each in the order of memory."""

    structure: trees.TreeSpec
    axes: Sequence[tuple[int, ...]]

    @classmethod
    def of(cls, value: Any) -> Self:
        leaves, structure = trees.tree_flatten(value)
        return cls(structure, [_in_memory(leaf) for leaf in leaves])

    def dense(self, value: Any) -> list[Tensor]:
        """Return the tensors as they lie in memory, of the same or of another value."""
        leaves = trees.tree_leaves(value)
        return [_permuted(leaf, axes) for leaf, axes in zip(leaves, self.axes, strict=True)]

    def value(self, dense: Sequence[Tensor]) -> Any:
        """Return what consists of the tensors, given as they lie in memory."""
        leaves = [
            _permuted(leaf, sorted(range(len(axes)), key=axes.__getitem__))
            for leaf, axes in zip(dense, self.axes, strict=True)
        ]
        return trees.tree_unflatten(leaves, self.structure)


def _in_memory(value: Tensor) -> tuple[int, ...]:
    """Return the axes of a tensor from that with the longest stride to that with the shortest."""
    axes = range(value.ndim)
    return (*axes,) if value.is_contiguous() else (*sorted(axes, key=value.stride, reverse=True),)


def _permuted(value: Tensor, axes: Sequence[int]) -> Tensor:
    return value if list(axes) == sorted(axes) else value.permute(*axes)


class _Exported(nn.Module):
    """A function of tensors as they lie in memory, as the module that the exporter needs."""

    def __init__(self, function: Callable[..., Any], given: _Tree, returned: _Tree) -> None:
        super().__init__()
        self.function, self.given, self.returned = function, given, returned

    def forward(self, *dense: Tensor) -> list[Tensor]:
        """Return the function's result."""
        return self.returned.dense(self.function(*self.given.value(dense)))


@dataclass(frozen=True)
class Ran:
    """What ran: a node, an op in a scope, or a whole step; begin and end in µs."""

    name: str
    begin_us: float
    end_us: float
    scope: Entered | None = None


def write_profile(folder: Path, steps: Iterable[tuple[Ran, Sequence[Ran]]]) -> None:
    """Write steps and the nodes of each, in order, as a trace of one thread; nodes of a scope are together in it."""
    written = []
    for step, nodes in steps:
        written.append(_event("user_annotation", step))
        for scope, group in groupby(nodes, key=lambda node: node.scope):
            of_scope = [*group]
            if scope:
                written.append(_event("user_annotation", Ran(scope.name, of_scope[0].begin_us, of_scope[-1].end_us)))
            written += [_event("cpu_op", node) for node in of_scope]
    Path(folder, "trace.json").write_text(json.dumps({"traceEvents": written}))


def _event(category: str, ran: Ran) -> dict[str, Any]:
    times = {"ts": ran.begin_us, "dur": ran.end_us - ran.begin_us}
    return {"ph": "X", "cat": category, "name": ran.name, "pid": 0, "tid": 0, **times}


def _scopes(program: torch.onnx.ONNXProgram) -> dict[str, Entered]:
    """Return the scope of each node and of each of its results, by their names; of those that are in one.

    What the exporter made of several ops is in the scope of the op of its result; but a convolution is in its own, not
    in that of the normalisation that its weights contain.
    """
    assert program.exported_program is not None
    ops = {op.name: op for op in program.exported_program.graph.nodes}
    found: dict[str, Entered] = {}
    for node in program.model.graph:
        results = [str(value.name) for value in node.outputs]
        source = node.meta.get("node") or next((ops[name] for name in results if name in ops), None)
        while source and node.op_type == "Conv" and "conv" not in source.name:
            source = next(iter(source.all_input_nodes), None)
        if source and (scope := source.meta.get("custom", {}).get(SCOPE)):
            found |= dict.fromkeys([str(node.name), *results], scope)
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
        exported: tuple[Run, _Tree, _Tree] | None = None

        def step(*args: Any) -> Any:
            nonlocal exported
            run, given, returned = exported = exported or self._exported(function, args)
            return returned.value(run(given.dense(args)))

        return cast("Callable[_P, _T]", step)

    def _exported(self, function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Run, _Tree, _Tree]:
        with torch.no_grad(), warnings.catch_warnings(), scratch() as folder:
            warnings.simplefilter("ignore")
            given, returned = _Tree.of(args), _Tree.of(function(*args))
            module, inputs = _Exported(function, given, returned).eval(), tuple(given.dense(args))
            kept_rules = tuple(rule for rule in rewriter._DEFAULT_REWRITE_RULES if rule not in _WRONG)
            with preserve_node_meta(), patch.object(rewriter, "_DEFAULT_REWRITE_RULES", kept_rules):
                program = torch.onnx.export(module, inputs, dynamo=True, verbose=False)
            assert program is not None
            program.save(folder / "model.onnx", external_data=True)
            kept, run = self.load(folder / "model.onnx", _scopes(program))
        if kept != len(inputs):
            raise UserError(
                f"the exported model has {kept} of {len(inputs)} inputs: the others do not affect its result"
            )
        return run, given, returned

    def threads(self) -> int:
        """Return the number of threads that models are loaded with; `load` checks that the runtime has as many."""
        return self.own_threads

    @contextmanager
    @abstractmethod
    def profile(self, folder: Path) -> Iterator[StepMarker]:
        """Write a profile of what the runtime does, which PyTorch's profiler does not see."""
