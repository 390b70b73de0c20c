"""Models of libraries in PyTorch: their results, losses, scopes and inputs, whatever the library.

Random parts of training, such as dropout, are off: what is random cannot be held to anything.
"""

import copy
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import wraps
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from benchmarker import FLOATS, PRECISIONS, Case, Support, UserError, Workload, hookimpl
from benchmarker_plugins.frameworks.torch import DTYPES, TorchFramework, scope
from benchmarker_problems.libraries import Library, memory
from benchmarker_problems.own.arguments import Inputs, Place, placed
from benchmarker_problems.own.torch import Arguments, TorchCalls
from benchmarker_problems.own.workload import workload

OPERATORS = ("nms", "qnms")
"""Operators in C++ that importing torchvision expects."""
LABELS = ("labels", "start_positions", "end_positions")
"""Names of inputs of the loss alone."""
KEPT = "inv_freq"
"""The ending of buffers that stay in fp32: frequencies of rotary positions, as libraries load them in any precision."""

__all__ = ["build_workload", "describe_workload"]


def _operators() -> Any:
    """Make torchvision importable beside a PyTorch that its build is not for; returns what must be kept for that.

    The wheels on PyPI are for PyTorch with CUDA. Beside that for CPUs their own operators cannot be loaded, but most
    models need none.
    """
    if find_spec("torchvision") is None:
        return None
    try:
        return import_module("torchvision")
    except RuntimeError:  # operator torchvision::nms does not exist
        library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
        for name in OPERATORS:
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")  # type: ignore[no-untyped-call]
        return library


_KEPT_OPERATORS = _operators()


@hookimpl
def describe_workload() -> Support:
    """Return every floating-point type; a model may not support all of them."""
    return Support(dict.fromkeys(("inference", "forward_backward", "training"), FLOATS))


@hookimpl
def build_workload(framework: TorchFramework, case: Case, problem: Library, data: Inputs) -> Workload:
    """Build a step: the results of the model; its loss and gradients; or a step of AdamW on its loss.

    Unlike a function of which nothing is known, a library's model keeps no results and does not fool a clock. Only what
    a compiler has made of it is verified once more after timing.
    """
    calls = LibraryCalls(framework, case, problem, data)
    made = workload(calls, data)
    assert made.exact
    exact = made.exact
    verify = made.verify if case.compile else lambda _: None
    return replace(made, exact=lambda: calls.no_room_for_check() or exact(), verify=verify, suspicions=list)


class Fed(nn.Module):
    """A model with arguments by name: a call returns its results, or its loss if it `trains`."""

    def __init__(self, model: nn.Module, trains: bool) -> None:
        super().__init__()
        self.model = model
        self.trains = trains
        self.takes_labels = any(name in LABELS for name in signature(model.forward).parameters)

    def forward(self, **arguments: Tensor) -> Any:
        """Return the tensors among the results by their numbers, or the loss."""
        if self.trains:
            return self.loss(**arguments)
        return dict(enumerate(tensors(self.model(**_without_labels(arguments)))))

    def loss(self, **arguments: Tensor) -> Tensor:
        """Return the loss of the model itself, or else the cross-entropy of its first result with the labels.

        Without labels it is the mean square of the first result.
        """
        result = self.model(**(arguments if self.takes_labels else _without_labels(arguments)))
        loss = getattr(result, "loss", None)
        if isinstance(loss, Tensor):
            return loss.mean()
        first, labels = tensors(result)[0], arguments.get(LABELS[0])
        return first.square().mean() if labels is None or self.takes_labels else F.cross_entropy(first, labels)


def refuse_unknown(name: str, model: nn.Module, arguments: Iterable[str]) -> None:
    """Raise `UserError` for an argument that a model does not take; labels may be those of the loss alone."""
    parameters = signature(model.forward).parameters
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return
    if off := next((each for each in arguments if each not in (*parameters, *LABELS)), None):
        raise UserError(f"{name} takes no argument {off!r}; it takes {', '.join(parameters)}")


def _without_labels(arguments: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value for name, value in arguments.items() if name not in LABELS}


def tensors(result: Any) -> list[Tensor]:
    """Return the floating-point tensors in the result of a model, in their order."""
    leaves = tree_leaves(result.to_tuple() if hasattr(result, "to_tuple") else result)
    return [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.is_floating_point()]


class FedCalls(TorchCalls):
    """How PyTorch calls models that are `Fed`."""

    def put(self, batch: Mapping[str, np.ndarray], precision: str) -> Arguments:
        """Return the arguments, without gradients of their own."""
        self.differentiable: list[str] = []
        dtype = DTYPES[PRECISIONS[precision].parameter]

        def tensor(place: Place) -> Tensor:
            value = batch[place.name]
            return self.framework.put(value, dtype if value.dtype.kind == "f" else None)

        return placed(self.template, tensor)

    def outputs(self, result: Any) -> Mapping[str, np.ndarray]:
        """Return the results by name, and all gradients together: those of some weights are nothing but rounding."""
        found = super().outputs(result)
        gradients = [value.ravel() for name, value in found.items() if name.startswith("d_")]
        others = {name: value for name, value in found.items() if not name.startswith("d_")}
        return {**others, "gradients": np.concatenate(gradients)} if gradients else others


class LibraryCalls(FedCalls):
    """A model of a library: the first that is built is measured, and others are copies of it where they can be."""

    problem: Library

    def __init__(self, framework: TorchFramework, case: Case, problem: Library, data: Inputs) -> None:
        super().__init__(framework, case, problem, data)
        self.first: nn.Module | None = None
        self.is_trained = False
        self.weights = memory.weight_count(lambda: problem.builder.build(replace(problem, weights=""), case.precision))
        memory.refuse(problem, case, self.weights, framework.device)

    def no_room_for_check(self) -> str | None:
        """Return why there is no check, if a copy of the model in fp64 does not fit beside it."""
        return memory.no_room_for_check(self.case, self.weights, self.framework.device)

    def made(self, function: str, precision: str) -> Fed:
        """Return the model in the type of the precision, with its arguments by name."""
        return Fed(self.built(precision), self.case.mode != "inference")

    def built(self, precision: str) -> nn.Module:
        """Return the model on the device, in the type of the precision, with weights from the seed of the case.

        A model is measured first. Another of the same type is that one, if nothing changes its weights, or else a copy;
        in fp64 it is a copy if the first has not rounded the weights. Only where neither is so, it is built anew.
        """
        kind = PRECISIONS[precision].parameter
        if self.first is None:
            self.first = self._new(precision)
            return self.first
        of_first = PRECISIONS[self.case.precision].parameter
        if self.case.measuring.profiling != "no" or self.is_trained:
            return self._new(precision)
        if kind == of_first and self.case.mode != "training":
            return self.first
        if kind == of_first or (of_first, kind) == ("fp32", "fp64"):
            with suppress(Exception):  # tensors that are results of others cannot be copied
                model = _copied(self.first, DTYPES[kind])
                if kind == "fp64":
                    self.problem.builder.prepare_fp64(model)
                return model
        return self._new(precision)

    def step(self, function: Any, *, compiled: bool) -> Callable[[Arguments], Any]:
        """Return a step in the mode of the case; training notes that the weights of the first model are others."""
        step = super().step(function, compiled=compiled)
        if self.case.mode != "training" or function.model is not self.first:
            return step

        def training(arguments: Arguments) -> Any:
            self.is_trained = True
            return step(arguments)

        return training

    def _new(self, precision: str) -> nn.Module:
        torch.manual_seed(self.case.seed)
        with torch.device(self.framework.device):
            model: Any = self.problem.builder.build(self.problem, precision)
        refuse_unknown(self.problem.measured, model, self.template)
        model.train(self.case.mode != "inference")
        without_chance(model)
        if self.case.measuring.profiling != "no":
            mark(model, self.problem.depth)
        convert(model, DTYPES[PRECISIONS[precision].parameter])
        return model.to(self.framework.device)  # type: ignore[no-any-return]


def prepare_fp64(model: nn.Module) -> None:
    """Prepare a model that was built for another precision for fp64: nothing, for a model of most libraries."""


def _copied(model: nn.Module, dtype: torch.dtype) -> nn.Module:
    """Return a copy of a model with its floating-point weights in a type, each of which is copied once."""
    weights = {
        id(weight): nn.Parameter(weight.detach().to(dtype, copy=True), requires_grad=weight.requires_grad)
        for weight in model.parameters()
        if weight.is_floating_point()
    }
    copied = copy.deepcopy(model, weights)
    convert(copied, dtype)
    return copied


def convert(model: nn.Module, dtype: torch.dtype) -> None:
    """Convert the floating-point weights and buffers of a model, but for rotary frequencies."""
    for module in model.modules():
        for name, buffer in list(module._buffers.items()):
            if buffer is not None and buffer.is_floating_point() and not name.endswith(KEPT):
                module._buffers[name] = buffer.to(dtype)
        for parameter in module.parameters(recurse=False):
            if parameter.is_floating_point():
                parameter.data = parameter.data.to(dtype)


def without_chance(model: nn.Module) -> None:
    """Set the probability of everything that a model drops by chance in training to 0."""
    for module in model.modules():
        drops = "drop" in type(module).__name__.lower() or type(module).__name__ == "StochasticDepth"
        for name, value in vars(module).items():
            if isinstance(value, float) and ("drop" in name or (drops and name == "p")):
                setattr(module, name, 0.0)


def mark(model: nn.Module, depth: int) -> None:
    """Mark the calls of modules for a profile by their names, those of a list alike: `model.layers.*.self_attn`."""
    for name, module in model.named_modules():
        pattern = re.sub(r"\b\d+\b", "*", name)
        if name and sum(part != "*" for part in pattern.split(".")) <= depth:
            module.forward = _within(pattern, module.forward)


def _within(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def marked(*args: Any, **kwargs: Any) -> Any:
        with scope(name):
            return function(*args, **kwargs)

    return marked
