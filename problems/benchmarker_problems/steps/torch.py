"""Steps of a model in PyTorch. Mixed precision is autocast over fp32 weights.

A model is a module whose parameters have the names of the problem's weights, `kernel` and `scale` written `weight`,
`mean` and `var` as running statistics, and two functions of the tensors of a batch by name: to its output, and to its
loss.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from itertools import cycle
from typing import Any, ParamSpec, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from benchmarker import PRECISIONS, Case, Data, Workload
from benchmarker_plugins.frameworks.torch import DTYPES, TorchFramework, scope
from benchmarker_problems.parallel import divides_batch
from benchmarker_problems.parallel.torch import gathered, whole
from benchmarker_problems.steps import ADAMW, AdamW, Sgd, fixed_loss_scale, is_statistic

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Model = TypeVar("_Model", bound=nn.Module)
Batches = Iterator[list[dict[str, Tensor]]]
"""Each batch in the parts over which gradients are summed."""
Step = Callable[[], dict[str, Tensor]]
ShareOf = Callable[[Tensor, Tensor], Tensor]


def load(
    framework: TorchFramework,
    make: Callable[[], _Model],
    data: Data,
    dtype: torch.dtype,
    divide: Callable[[_Model], ShareOf] = lambda _: lambda whole, _: whole,
) -> _Model:
    """Return the model with the given weights, on the device; integers keep their type.

    `divide` may divide the weights of the empty model among several devices. It returns the function from a weight, and
    that of the empty model, to the share that this process loads.
    """
    with torch.device("meta"):
        model = make()
    share_of = divide(model)
    empty = model.state_dict()

    def loaded(name: str, weight: np.ndarray) -> Tensor:
        kept = dtype if np.issubdtype(weight.dtype, np.floating) else None
        whole = framework.put(np.ascontiguousarray(outputs_first(name, weight)), kept)
        return share_of(whole, empty[parameter_name(name)])

    model.load_state_dict(
        {parameter_name(name): loaded(name, weight) for name, weight in data.weights.items()}, assign=True
    )
    return model


def parameter_name(name: str) -> str:
    """Return the name of a weight in PyTorch's modules."""
    module, _, own = name.rpartition(".")
    return f"{module}.{_OWN_NAMES.get(own, own)}" if module else name


_OWN_NAMES = {"scale": "weight", "kernel": "weight", "mean": "running_mean", "var": "running_var"}


def outputs_first(name: str, value: np.ndarray) -> np.ndarray:
    """Convert a weight to PyTorch's layout; kernels are [outputs, inputs, *window], or [experts, outputs, inputs]."""
    if not name.endswith(".kernel"):
        return value
    return value.swapaxes(-1, -2) if value.ndim == 3 else np.moveaxis(value, (-1, -2), (0, 1))


def outputs_last(name: str, value: np.ndarray) -> np.ndarray:
    """Convert a weight or gradient back from PyTorch's layout."""
    if not name.endswith(".kernel"):
        return value
    return value.swapaxes(-1, -2) if value.ndim == 3 else np.moveaxis(value, (0, 1), (-1, -2))


def plainly(block: nn.Module, *args: Any) -> Tensor:
    """Apply a block of a model; its activations stay for the backward pass."""
    result: Tensor = block(*args)
    return result


def recomputing(block: nn.Module, *args: Any) -> Tensor:
    """Apply a block of a model; the backward pass computes its activations again."""
    result: Tensor = checkpoint(block, *args, use_reentrant=False, preserve_rng_state=False)
    return result


def workload(
    framework: TorchFramework,
    case: Case,
    data: Data,
    model: nn.Module,
    output: str,
    output_of: Callable[..., Tensor],
    loss_of: Callable[..., Tensor],
    *,
    terms: int,
    inputs: tuple[str, ...] = ("tokens",),
    settings: AdamW | Sgd = ADAMW,
    microbatches: int = 1,
    recomputed_flops: int = 0,
    in_order: Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]] = dict,
) -> Workload:
    """Return the workload of a model in the mode of the case.

    `output_of` takes those tensors of a batch that `inputs` names, `loss_of` all. The loss is a mean over `terms`. With
    backward, gradients are summed over `microbatches` parts of the batch. Where several devices divide the batch, each
    rank trains on its part. `in_order` undoes the order in which devices divide weights.
    """
    types = PRECISIONS[case.precision]
    by_batch = divides_batch(case.parallel)
    own = [
        {name: framework.part(value) if by_batch else value for name, value in batch.items()} for batch in data.batches
    ]
    batches = cycle([_split(framework, batch, DTYPES[types.parameter], microbatches) for batch in own])
    loss_scale = fixed_loss_scale(terms) if types.compute == "fp16" else 1.0
    scale_left = loss_scale if types.parameter == "fp16" else 1.0
    if microbatches > 1:
        loss_of = _share(loss_of, microbatches)
    if types.is_mixed:
        compute_dtype = DTYPES[types.compute]
        output_of, loss_of = (_autocast(each, framework.device.type, compute_dtype) for each in (output_of, loss_of))
    recomputed = recomputed_flops // framework.ranks if case.mode != "inference" else 0

    def on_host(values: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
        return {
            name: outputs_last(name, value.detach().cpu().double().numpy())
            / (scale_left if name.startswith("d_") else 1)
            for name, value in values.items()
        }

    def outputs(result: dict[str, Tensor]) -> dict[str, np.ndarray]:
        return on_host({**result, "loss": framework.mean(result["loss"])} if by_batch else result)

    if case.mode == "inference":
        step = inference_step(output, framework.compiled(output_of, case.compile), batches, inputs)
        return Workload(step, outputs)
    weights = {name: model.get_parameter(parameter_name(name)) for name in data.weights if not is_statistic(name)}
    loss_of = framework.compiled(loss_of, case.compile)
    if case.mode == "forward_backward":
        by_gradient = {f"d_{name}": weight for name, weight in weights.items()}
        step = forward_backward_step(loss_of, batches, by_gradient, loss_scale, scale_left)
        return Workload(step, outputs, recomputed)
    scaler = torch.amp.GradScaler(framework.device.type, enabled=case.precision == "mixed_fp16")
    optimizer = adamw(model, settings) if isinstance(settings, AdamW) else sgd(model, settings)
    step = training_step(loss_of, batches, optimizer, scaler)

    def training_outputs(result: dict[str, Tensor]) -> Mapping[str, np.ndarray]:
        moments = {f"m_{name}": average(optimizer, weight) for name, weight in weights.items()}
        if case.parallel != "none":
            moments = {name: gathered(moment) for name, moment in moments.items()}
        return in_order(outputs({**result, **moments}))

    if case.parallel == "none":
        return Workload(step, training_outputs, recomputed)
    return Workload(
        step,
        training_outputs,
        recomputed,
        weights=lambda: [on_host(whole(weights))],
        gradients=lambda: [in_order(outputs(step_with_gradients(step, optimizer, weights)))],
    )


def _split(
    framework: TorchFramework, batch: Mapping[str, np.ndarray], dtype: torch.dtype, microbatches: int
) -> list[dict[str, Tensor]]:
    """Return the parts of a batch on the device; PyTorch takes 64-bit indices."""
    tensors = {
        name: framework.put(value, dtype if np.issubdtype(value.dtype, np.floating) else torch.int64)
        for name, value in batch.items()
    }
    parts = zip(*(torch.tensor_split(tensor, microbatches) for tensor in tensors.values()), strict=True)
    return [dict(zip(tensors, part, strict=True)) for part in parts]


def _share(loss_of: Callable[..., Tensor], microbatches: int) -> Callable[..., Tensor]:
    """Return the share of a part of the batch in the mean loss."""
    return lambda **part: loss_of(**part) / microbatches


def _autocast(function: Callable[_P, _T], device: str, dtype: torch.dtype) -> Callable[_P, _T]:
    def under(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        with torch.autocast(device, dtype):
            return function(*args, **kwargs)

    return under


def inference_step(output: str, output_of: Callable[..., Tensor], batches: Batches, inputs: tuple[str, ...]) -> Step:
    """Return the step that computes the output of the next batch."""

    def step() -> dict[str, Tensor]:
        (batch,) = next(batches)
        with torch.inference_mode():
            return {output: output_of(*(batch[name] for name in inputs))}

    return step


def forward_backward_step(
    loss_of: Callable[..., Tensor],
    batches: Batches,
    weights: Mapping[str, Tensor],
    loss_scale: float,
    scale_left: float,
) -> Step:
    """Return the step that computes the loss of the next batch and its gradients.

    The backward pass uses the loss times `loss_scale`; the gradients returned are the true ones times `scale_left`.
    """

    def step() -> dict[str, Tensor]:
        first, *others = next(batches)
        loss, gradients = loss_and_gradients(first)
        for part in others:
            further_loss, further = loss_and_gradients(part)
            loss += further_loss
            torch._foreach_add_(gradients, further)
        if scale_left != loss_scale:
            torch._foreach_mul_(gradients, scale_left / loss_scale)
        return {"loss": loss, **dict(zip(weights, gradients, strict=True))}

    def loss_and_gradients(part: dict[str, Tensor]) -> tuple[Tensor, tuple[Tensor, ...]]:
        loss = loss_of(**part)
        return loss.detach(), torch.autograd.grad(loss * loss_scale, list(weights.values()))

    return step


def adamw(model: nn.Module, settings: AdamW) -> torch.optim.Optimizer:
    """Return AdamW, fused into one kernel; weights that devices divide need a kernel of their own."""
    s = settings
    groups: dict[tuple[bool, type[Tensor]], list[Tensor]] = defaultdict(list)
    for weight in model.parameters():
        groups[weight.ndim > 1, type(weight.data)].append(weight)
    return torch.optim.AdamW(
        [
            {"params": weights, "weight_decay": s.weight_decay if decays else 0.0}
            for (decays, _), weights in groups.items()
        ],
        lr=s.learning_rate,
        betas=(s.beta_1, s.beta_2),
        eps=s.eps,
        fused=True,
    )


def sgd(model: nn.Module, settings: Sgd) -> torch.optim.Optimizer:
    """Return stochastic gradient descent with momentum, fused into one kernel."""
    s = settings
    return torch.optim.SGD(
        model.parameters(), lr=s.learning_rate, momentum=s.momentum, weight_decay=s.weight_decay, fused=True
    )


def average(optimizer: torch.optim.Optimizer, weight: Tensor) -> Tensor:
    """Return the moving average of a weight's gradients; zeros if no step has used one."""
    state = optimizer.state[weight]
    return state["exp_avg" if "exp_avg" in state else "momentum_buffer"] if state else torch.zeros_like(weight)


def training_step(
    loss_of: Callable[..., Tensor], batches: Batches, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler
) -> Step:
    """Return the step that computes the loss of the next batch and updates the weights in place."""

    def step() -> dict[str, Tensor]:
        losses = []
        for part in next(batches):
            loss = loss_of(**part)
            torch.autograd.backward(scaler.scale(loss))
            losses.append(loss.detach())
        with scope("optimizer"):
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        return {"loss": sum(losses[1:], losses[0])}

    return step


def step_with_gradients(
    step: Step, optimizer: torch.optim.Optimizer, weights: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Run a training step; returns its loss, and the gradients with which the optimizer updates the weights, whole."""
    found: dict[str, Tensor] = {}

    def keep(*_: Any) -> None:
        for name, weight in weights.items():
            gradient = torch.zeros_like(weight) if weight.grad is None else weight.grad
            found[f"d_{name}"] = gathered(gradient).clone()

    hook = optimizer.register_step_pre_hook(keep)
    result = step()
    hook.remove()
    return {**result, **found}
