"""Steps of a model in JAX: weights and batches are on the device, and the state of training is donated.

A model is given as two functions of the weights by name, and of the arrays of a batch by name: to its output, and to
its loss. In mixed precision the weights are fp32, and the model casts them for each product. If there are running
statistics among the weights, the second function returns the loss and the updated statistics.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import cycle
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from flax.training.dynamic_scale import DynamicScale
from flax.traverse_util import unflatten_dict
from jax import Array

from benchmarker import PRECISIONS, Case, Data, Workload
from benchmarker_plugins.frameworks.jax import DTYPES, JaxFramework
from benchmarker_problems.steps import ADAMW, AdamW, Sgd, fixed_loss_scale, is_statistic

Weights = dict[str, Array]
Batches = Iterator[dict[str, Array]]
Step = Callable[[], dict[str, Array]]
State = tuple[Weights, Any, DynamicScale | None]
"""Weights and running statistics, the optimizer's state, and in mixed fp16 the dynamic loss scale."""


def apply(model: nn.Module, weights: Weights, *inputs: Array) -> Array:
    """Return the output of a Flax model with weights named `MODULE.PARAMETER`; a module's name may contain a dot."""
    nested = unflatten_dict({tuple(name.rsplit(".", 2)): weight for name, weight in weights.items()})
    return cast("Array", model.apply({"params": nested}, *inputs))


def workload(
    framework: JaxFramework,
    case: Case,
    data: Data,
    output: str,
    output_of: Callable[..., Array],
    loss_of: Callable[..., Any],
    *,
    terms: int,
    inputs: tuple[str, ...] = ("tokens",),
    settings: AdamW | Sgd = ADAMW,
    recomputed_flops: int = 0,
) -> Workload:
    """Return the workload of a model in the mode of the case.

    `output_of` takes the weights and those arrays of a batch that `inputs` names, `loss_of` the weights and all. The
    loss is a mean over `terms`.
    """
    types = PRECISIONS[case.precision]
    weights = {name: framework.put(weight, DTYPES[types.parameter]) for name, weight in data.weights.items()}
    batches = cycle(
        [
            {name: framework.put(value, _dtype(value, DTYPES[types.parameter])) for name, value in batch.items()}
            for batch in data.batches
        ]
    )
    loss_scale = fixed_loss_scale(terms) if types.compute == "fp16" else 1.0
    scale_left = loss_scale if types.parameter == "fp16" else 1.0
    if case.mode == "inference":
        step = inference_step(output, output_of, weights, batches, inputs)
    elif case.mode == "forward_backward":
        step = forward_backward_step(forward_backward(loss_of, loss_scale, scale_left), weights, batches)
    else:
        optimizer = adamw(settings) if isinstance(settings, AdamW) else sgd(settings)
        state = initial_state(weights, optimizer, case.precision)
        step = training_step(partial(training, loss_of=loss_of, optimizer=optimizer), state, batches)

    def outputs(result: dict[str, Array]) -> Mapping[str, np.ndarray]:
        return {
            name: np.asarray(value, np.float64) / (scale_left if name.startswith("d_") else 1)
            for name, value in result.items()
        }

    return Workload(step, outputs, recomputed_flops if case.mode != "inference" else 0)


def _dtype(value: np.ndarray, dtype: Any) -> Any:
    """Return the type of an array of a batch on the device: integers keep theirs."""
    return dtype if np.issubdtype(value.dtype, np.floating) else None


def forward_backward(
    loss_of: Callable[..., Any], loss_scale: float, scale_left: float
) -> Callable[..., dict[str, Array]]:
    """Return the function from (weights, batch) to the loss and its gradients.

    The backward pass uses the loss times `loss_scale`; the gradients returned are the true ones times `scale_left`.
    """

    def function(weights: Weights, **batch: Array) -> dict[str, Array]:
        trained, statistics = apart(weights)

        def scaled_loss_of(trained: Weights) -> tuple[Array, Array]:
            loss, _ = scored(loss_of, trained, statistics, batch)
            return loss * loss_scale, loss

        gradients, loss = jax.grad(scaled_loss_of, has_aux=True)(trained)
        unscale = scale_left / loss_scale
        return {"loss": loss, **{f"d_{name}": gradient * unscale for name, gradient in gradients.items()}}

    return function


def apart(weights: Weights) -> tuple[Weights, Weights]:
    """Return the weights that are trained, and the running statistics."""
    statistics = {name: weight for name, weight in weights.items() if is_statistic(name)}
    return {name: weight for name, weight in weights.items() if name not in statistics}, statistics


def scored(
    loss_of: Callable[..., Any], trained: Weights, statistics: Weights, batch: dict[str, Array]
) -> tuple[Array, Weights]:
    """Return the loss and the updated statistics."""
    result = loss_of(trained | statistics, **batch)
    return result if statistics else (result, {})


def adamw(settings: AdamW) -> optax.GradientTransformation:
    """Return AdamW."""
    s = settings
    return optax.adamw(
        s.learning_rate,
        b1=s.beta_1,
        b2=s.beta_2,
        eps=s.eps,
        weight_decay=s.weight_decay,
        mask=lambda weights: jax.tree.map(lambda weight: weight.ndim > 1, weights),
    )


def sgd(settings: Sgd) -> optax.GradientTransformation:
    """Return stochastic gradient descent with momentum, in which the decay is a part of the gradient as in PyTorch."""
    return optax.chain(
        optax.add_decayed_weights(settings.weight_decay),
        optax.sgd(settings.learning_rate, momentum=settings.momentum),
    )


def training(
    state: State, *, loss_of: Callable[..., Any], optimizer: optax.GradientTransformation, **batch: Array
) -> tuple[State, Array]:
    """Return the state after one update and the loss before it; if gradients overflow, only the scale changes."""
    weights, moments, scaler = state
    trained, statistics = apart(weights)

    def with_statistics(trained: Weights) -> tuple[Array, Weights]:
        return scored(loss_of, trained, statistics, batch)

    if scaler is None:
        (loss, statistics), gradients = jax.value_and_grad(with_statistics, has_aux=True)(trained)
    else:
        scaler, finite, (loss, statistics), gradients = scaler.value_and_grad(with_statistics, has_aux=True)(trained)
    with jax.named_scope("optimizer"):
        updates, new_moments = optimizer.update(gradients, moments, trained)
        new_trained = optax.apply_updates(trained, updates)
        if scaler is not None:
            new_trained, new_moments = jax.tree.map(
                partial(jnp.where, finite), (new_trained, new_moments), (trained, moments)
            )
    return (new_trained | statistics, new_moments, scaler), loss


def initial_state(weights: Weights, optimizer: optax.GradientTransformation, precision: str) -> State:
    """Return the weights, the optimizer's state, and for mixed fp16 the dynamic loss scale with PyTorch's settings."""
    scaler = None
    if precision == "mixed_fp16":
        # Flax increases the scale one step after the given interval, so this equals PyTorch's 2000.
        scaler = DynamicScale(growth_interval=1999, fin_steps=jnp.int32(0), scale=jnp.float32(2**16))
    return weights, jax.jit(optimizer.init)(apart(weights)[0]), scaler


def inference_step(
    output: str, output_of: Callable[..., Array], weights: Weights, batches: Batches, inputs: tuple[str, ...]
) -> Step:
    """Return the step that computes the output of the next batch."""
    function = jax.jit(output_of)

    def step() -> dict[str, Array]:
        batch = next(batches)
        return {output: function(weights, *(batch[name] for name in inputs))}

    return step


def forward_backward_step(function: Callable[..., dict[str, Array]], weights: Weights, batches: Batches) -> Step:
    """Return the step that computes the loss of the next batch and its gradients."""
    function = jax.jit(function)
    return lambda: function(weights, **next(batches))


def training_step(function: Callable[..., tuple[State, Array]], state: State, batches: Batches) -> Step:
    """Return the step that computes the loss of the next batch and updates the state, reusing its memory."""
    function = jax.jit(function, donate_argnums=0)

    def step() -> dict[str, Array]:
        nonlocal state
        state, loss = function(state, **next(batches))
        return {"loss": loss}

    return step
