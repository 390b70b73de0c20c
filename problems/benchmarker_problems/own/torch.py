"""Functions and modules of the user in PyTorch."""

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import flop_counter
from torch.utils._pytree import tree_leaves

from benchmarker import FLOATS, PRECISIONS, Case, CountedBy, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.torch import DTYPES, TorchFramework, scope
from benchmarker_problems.own import Own
from benchmarker_problems.own.arguments import Inputs, Place, placed, results
from benchmarker_problems.own.workload import Calls, workload
from benchmarker_problems.steps import ADAMW
from benchmarker_problems.steps.torch import adamw

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def _of_groups(a: torch.Size, b: torch.Size, *args: Any, **kwargs: Any) -> int:
    """Return the FLOPs of products of which each row, or each term of the sums, belongs to one group."""
    return 2 * (a.numel() * b[-1] if len(a) == 2 or len(b) == 3 else b.numel() * a[-2])


def _of_attention(q: torch.Size, k: torch.Size, v: torch.Size, *args: Any, **kwargs: Any) -> int:
    """Return the FLOPs of the two products of attention, [batch, heads, length, width] each."""
    return 2 * q[:-1].numel() * k[-2] * (q[-1] + v[-1])


def _of_its_backward(of_result: torch.Size, *several: Any, **kwargs: Any) -> int:
    """Return the FLOPs of the four products of its backward pass, without what a kernel repeats."""
    return 2 * _of_attention(*several)


def _of_convolution_backward(
    of_result: torch.Size,
    x: torch.Size,
    kernel: torch.Size,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    more: Any,
    groups: int,
    asked: Sequence[bool],
    **kwargs: Any,
) -> int:
    """Return the FLOPs of the gradients of the input and of the kernel, if `asked`: each as of the convolution."""
    window = (x if transposed else of_result)[2:]
    return 2 * sum(asked[:2]) * x[0] * window.numel() * kernel.numel()


_aten = torch.ops.aten
_ATTENTION = [f"_scaled_dot_product_{kind}" for kind in ("flash_attention", "efficient_attention", "cudnn_attention")]
_ATTENTION += ["_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_fused_attention_overrideable"]
FORMULAS = {
    _aten._grouped_mm: _of_groups,
    _aten.convolution_backward: _of_convolution_backward,
    **{getattr(_aten, name): _of_attention for name in _ATTENTION},
    **{getattr(_aten, f"{name}_backward"): _of_its_backward for name in _ATTENTION},
}
"""What PyTorch's own counter leaves out, such as attention on a CPU or groups in the backward pass of a convolution, or
counts as a kernel does it."""


@hookimpl
def describe_workload() -> Support:
    """Return every floating-point type; a file may not support all of them."""
    return Support(dict.fromkeys(("inference", "forward_backward", "training"), FLOATS))


@hookimpl
def build_workload(framework: TorchFramework, case: Case, problem: Own, data: Inputs) -> Workload:
    """Build a step: a call of the function; with backward also its gradients, or a step of AdamW on a module's loss."""
    return workload(TorchCalls(framework, case, problem, data), data)


class TorchCalls(Calls[Arguments]):
    """How PyTorch calls functions, and modules whose weights it trains."""

    framework: TorchFramework

    def made(self, function: str, precision: str) -> Any:
        """Return the function, or the module on the device, in the type of the precision."""
        torch.manual_seed(self.case.seed)
        assert isinstance(self.problem, Own)
        made: Any = self.problem.made(function)
        return (
            made.to(self.framework.device, DTYPES[PRECISIONS[precision].parameter]) if self.has_weights(made) else made
        )

    def put(self, batch: Mapping[str, np.ndarray], precision: str) -> Arguments:
        """Return the arguments, which have gradients if these are asked for."""
        self.differentiable: list[str] = []

        def tensor(place: Place) -> Tensor:
            value = batch[place.name]
            made = self.framework.put(value, _dtype(value, place, precision))
            if self.case.mode != "forward_backward" or not (made.is_floating_point() or made.is_complex()):
                return made
            self.differentiable.append(place.name)
            return made.requires_grad_()

        return placed(self.template, tensor)

    def step(self, function: Any, *, compiled: bool) -> Callable[[Arguments], Any]:
        """Return a step in the mode of the case."""
        if self.case.mode == "training":
            return self._training(function, compiled)

        def scoped(arguments: Arguments) -> Any:
            with scope(self.problem.measured):
                return function(*arguments[0], **arguments[1])

        call = self.framework.compiled(scoped, compiled)
        if self.case.mode == "forward_backward":
            return self._backward(function, call)

        def inference(arguments: Arguments) -> Any:
            with torch.no_grad():
                return call(arguments)

        return inference

    def _backward(self, function: Any, call: Callable[[Arguments], Any]) -> Callable[[Arguments], Any]:
        """Return a step that also computes the gradients of inputs and weights, from random ones of the results."""
        trained = function.named_parameters() if self.has_weights(function) else ()
        weights = {name: weight for name, weight in trained if weight.requires_grad}
        cotangents: list[Tensor] = []

        def step(arguments: Arguments) -> dict[str, Any]:
            result = call(arguments)
            outputs = _differentiable(result)
            if not cotangents:
                rng = np.random.default_rng(self.case.seed)
                cotangents.extend(self.framework.put(rng.standard_normal(leaf.shape), leaf.dtype) for leaf in outputs)
            several = [*_differentiable(arguments), *weights.values()]
            gradients = torch.autograd.grad(outputs, several, cotangents, allow_unused=True, materialize_grads=True)
            names = [*self.differentiable, *weights]
            return {"result": result, "gradients": dict(zip(names, gradients, strict=True))}

        return step

    def _training(self, model: Any, compiled: bool) -> Callable[[Arguments], Tensor]:
        """Return a step of AdamW on the loss of a module, which is its result."""
        loss_of, optimizer = self.framework.compiled(model.loss, compiled), adamw(model, ADAMW)

        def step(arguments: Arguments) -> Tensor:
            with scope(self.problem.measured):
                loss = loss_of(*arguments[0], **arguments[1])
                loss.backward()
            with scope("optimizer"):
                optimizer.step()
                optimizer.zero_grad()
            return loss.detach()  # type: ignore[no-any-return]

        return step

    def outputs(self, result: Any) -> Mapping[str, np.ndarray]:
        """Return the results, and the gradients as `d_` and their names."""
        if self.case.mode != "forward_backward":
            return results(result, Tensor)
        gradients = {f"d_{name}": value for name, value in results(result["gradients"], Tensor).items()}
        return {**results(result["result"], Tensor), **gradients}

    def has_weights(self, function: Any) -> bool:
        """Whether it is a module."""
        return isinstance(function, nn.Module)

    def contents(self, arguments: Arguments) -> list[np.ndarray]:
        """Return copies of the tensors."""
        tensors = [leaf for leaf in tree_leaves(arguments) if isinstance(leaf, Tensor)]
        return [tensor.detach().to("cpu", torch.float64, copy=True).numpy() for tensor in tensors]

    def overwrite(self, arguments: Arguments, batch: Mapping[str, np.ndarray]) -> bool:
        """Copy the contents into the tensors."""
        places: list[str] = []
        placed(self.template, lambda place: places.append(place.name))
        tensors = [leaf for leaf in tree_leaves(arguments) if isinstance(leaf, Tensor)]
        with torch.no_grad():
            for tensor, place in zip(tensors, places, strict=True):
                tensor.copy_(torch.from_numpy(np.ascontiguousarray(batch[place])))
        return True

    def flops(self, function: Any, arguments: Arguments) -> tuple[int, CountedBy] | None:
        """Count those of matrix products, convolutions, attention, and of grouped products."""
        counter = flop_counter.FlopCounterMode(display=False, custom_mapping=FORMULAS)
        with counting(counter):
            if self.case.mode != "forward_backward":
                self.step(function, compiled=False)(arguments)
            else:  # the counter does not support `autograd.grad` in a module
                outputs = _differentiable(function(*arguments[0], **arguments[1]))
                torch.autograd.backward(outputs, [torch.ones_like(output) for output in outputs])
        for tensor in (*_differentiable(arguments), *(function.parameters() if self.has_weights(function) else ())):
            tensor.grad = None
        return (counter.get_total_flops(), "torch") if counter.get_total_flops() else None


def counting(counter: flop_counter.FlopCounterMode) -> AbstractContextManager[Any]:
    """Return a context in which a counter counts.

    Its own imports the compiler, only to keep it from compiling the counter, which takes as long as to import PyTorch.
    """
    mode: Any = getattr(flop_counter, "_FlopCounterMode", None)
    if mode is None or "torch._dynamo" in sys.modules:
        return counter

    class Mode(mode):  # type: ignore[misc]
        __torch_dispatch__ = inspect.unwrap(mode.__torch_dispatch__)

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False

    return Mode(counter)


def _differentiable(value: Any) -> list[Tensor]:
    """Return the tensors in a value that have gradients."""
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor) and leaf.requires_grad]


def _dtype(value: np.ndarray, place: Place, precision: str) -> torch.dtype | None:
    """Return the type of an array on the device; None for that which it has on the host."""
    if value.dtype.kind == "c":
        return torch.complex128 if precision == "fp64" else torch.complex64
    if value.dtype.kind != "f":
        return None
    if place.dtype is not None and precision != "fp64":
        return getattr(torch, place.dtype)  # type: ignore[no-any-return]
    return DTYPES[PRECISIONS[precision].parameter]
