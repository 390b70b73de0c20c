"""Steps of a model in JAX: weights and batches are on the device, and the state of training is donated.

A model is given as two functions of the weights by name, and of the arrays of a batch by name: to its output, and to
its loss. In mixed precision the weights are fp32, and the model casts them for each product.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import cycle
from typing import Any, Generic, NamedTuple, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from flax.traverse_util import unflatten_dict
from jax import Array
from jax.sharding import PartitionSpec
from optax.tree_utils import tree_get

from benchmarker import PRECISIONS, Case, Data, Workload
from benchmarker_plugins.frameworks.jax import DTYPES, JaxFramework
from benchmarker_problems.parallel.jax import NOT_DIVIDED, Division, copies, whole
from benchmarker_problems.steps import ADAMW, AdamW, Sgd, fixed_loss_scale, is_statistic

Weights = dict[str, Array]
Batches = Iterator[dict[str, Array]]
Step = Callable[[], dict[str, Array]]

GROWTH_INTERVAL = 2000
"""Successive steps without an overflow after which the loss scale doubles, as in PyTorch's `GradScaler`."""


class LossScale(NamedTuple):
    """Dynamic loss scale (Micikevicius et al., 2018): halves if gradients overflow, doubles if they long did not."""

    scale: Array
    steps: Array
    """Steps since it changed."""

    def updated(self, finite: Array) -> "LossScale":
        """Return the loss scale after a step, given whether its gradients were finite."""
        steps = jnp.where(finite, self.steps + 1, 0)
        grows = steps == GROWTH_INTERVAL
        factor = jnp.where(finite, jnp.where(grows, 2.0, 1.0), 0.5)
        return LossScale(self.scale * factor, jnp.where(grows, 0, steps))


_State = TypeVar("_State")
State = tuple[Weights, Any, LossScale | None]
"""Weights and running statistics, the optimizer's state, and in mixed fp16 the loss scale."""


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
    microbatches: int = 1,
    recomputed_flops: int = 0,
    division: Division | None = None,
    in_order: Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]] = dict,
) -> Workload:
    """Return the workload of a model in the mode of the case.

    `output_of` takes the weights and those arrays of a batch that `inputs` names, `loss_of` the weights and all. The
    loss is a mean over `terms`. With backward, gradients are summed over `microbatches` parts of the batch. On several
    devices, weights and batches are divided, and the loss is computed, as `division` says; `in_order` undoes the order
    in which devices divide weights.
    """
    types = PRECISIONS[case.precision]
    specs, batch_spec, loss_of = division or Division({}, NOT_DIVIDED, loss_of)
    spec_of = defaultdict(PartitionSpec, specs)
    weights = {
        name: framework.divided(weight, spec_of[name], DTYPES[types.parameter]) for name, weight in data.weights.items()
    }
    batches = cycle(
        [
            {
                name: framework.divided(value, batch_spec, _dtype(value, DTYPES[types.parameter]))
                for name, value in batch.items()
            }
            for batch in data.batches
        ]
    )
    loss_scale = fixed_loss_scale(terms) if types.compute == "fp16" else 1.0
    scale_left = loss_scale if types.parameter == "fp16" else 1.0

    def outputs(result: Mapping[str, Array]) -> dict[str, np.ndarray]:
        return {
            name: np.asarray(value, np.float64) / (scale_left if name.startswith("d_") else 1)
            for name, value in result.items()
        }

    if case.mode == "inference":
        return Workload(inference_step(output, output_of, weights, batches, inputs), outputs)
    if case.mode == "forward_backward":
        function = partial(forward_backward, loss_of, loss_scale, scale_left, microbatches)
        return Workload(forward_backward_step(function, weights, batches), outputs, recomputed_flops)

    def step_of(
        optimizer: optax.GradientTransformation, update: Callable[..., tuple[State, Array]], weights: Weights
    ) -> TrainingStep[State]:
        initial = partial(initial_state, optimizer=optimizer, precision=case.precision)
        # Steps are compiled for the devices of their arrays: the first state must be as bound to them as those to come.
        shardings = jax.tree_util.tree_map_with_path(
            lambda path, _: framework.sharding(spec_of[getattr(path[-1], "key", "")]), jax.eval_shape(initial, weights)
        )
        state = jax.jit(initial, out_shardings=shardings, donate_argnums=0)(weights)
        return TrainingStep(update, state, batches, shardings)

    optimizer = adamw(settings) if isinstance(settings, AdamW) else sgd(settings)
    update = partial(training, loss_of, optimizer, microbatches)
    step = step_of(optimizer, update, weights)

    def training_outputs(result: Mapping[str, Array]) -> Mapping[str, np.ndarray]:
        average = tree_get(step.state[1], "mu" if isinstance(settings, AdamW) else "trace")
        moments = {f"m_{name}": moment for name, moment in average.items()}
        if case.parallel != "none":
            moments = whole(moments, framework.sharding(NOT_DIVIDED))
        return in_order(outputs({**result, **moments}))

    made = Workload(step, training_outputs, recomputed_flops)
    if case.parallel == "none":
        return made

    def gradients() -> list[Mapping[str, np.ndarray]]:
        keeping = step_of(KEEPING, partial(training, loss_of, KEEPING, microbatches), step.state[0])
        result = keeping() | {f"d_{name}": gradient for name, gradient in keeping.state[1].items()}
        return [in_order(outputs(of_device)) for of_device in copies(whole(result, framework.sharding(NOT_DIVIDED)))]

    # On GPUs, XLA adds up the gradients of a row in no fixed order, so what devices compute each for itself may differ.
    alike = case.parallel == "dp" or framework.platform == "cpu"
    return replace(
        made,
        local=partial(local_steps, framework, case.precision, data, optimizer, update)
        if case.parallel == "dp"
        else None,
        weights=(lambda: [outputs(of_device) for of_device in copies(step.state[0])]) if alike else None,
        gradients=gradients,
    )


def local_steps(
    framework: JaxFramework,
    precision: str,
    data: Data,
    optimizer: optax.GradientTransformation,
    update: Callable[..., tuple[State, Array]],
) -> list[Step]:
    """Return for each device here the training step that is compiled for it alone, with its part of the batches."""
    dtype, count = DTYPES[PRECISIONS[precision].parameter], len(framework.devices)

    def of_device(number: int, device: jax.Device) -> Step:
        weights = {name: framework.put(weight, dtype, device) for name, weight in data.weights.items()}
        batches = [
            {
                name: framework.put(np.split(value, count)[number], _dtype(value, dtype), device)
                for name, value in batch.items()
            }
            for batch in data.batches
        ]
        state = jax.device_put(initial_state(weights, optimizer, precision), device)
        return TrainingStep(update, state, cycle(batches))

    return [of_device(number, device) for number, device in framework.own.items()]


def _dtype(value: np.ndarray, dtype: Any) -> Any:
    """Return the type of an array of a batch on the device: integers keep theirs."""
    return dtype if np.issubdtype(value.dtype, np.floating) else None


def forward_backward(
    loss_of: Callable[..., Any],
    loss_scale: float,
    scale_left: float,
    microbatches: int,
    weights: Weights,
    **batch: Array,
) -> dict[str, Array]:
    """Return the loss and its gradients.

    The backward pass uses the loss times `loss_scale`; the gradients returned are the true ones times `scale_left`.
    """
    loss, gradients, _ = loss_and_gradients(loss_of, loss_scale, microbatches, weights, batch)
    unscale = scale_left / loss_scale
    return {"loss": loss, **{f"d_{name}": gradient * unscale for name, gradient in gradients.items()}}


def loss_and_gradients(
    loss_of: Callable[..., Any],
    loss_scale: float | Array,
    microbatches: int,
    weights: Weights,
    batch: dict[str, Array],
) -> tuple[Array, Weights, Weights]:
    """Return the mean loss of the parts of a batch, the gradients of its product with `loss_scale`, and statistics.

    The last are the updated running statistics, if the model has any; these come from the whole batch, as one part.
    """
    trained, statistics = apart(weights)

    def of(part: dict[str, Array]) -> tuple[Array, Weights, Weights]:
        def scaled_loss_of(trained: Weights) -> tuple[Array, tuple[Array, Weights]]:
            result = loss_of(trained | statistics, **part)
            loss, updated = result if statistics else (result, {})
            loss /= microbatches
            return loss * loss_scale, (loss, updated)

        gradients, (loss, updated) = jax.grad(scaled_loss_of, has_aux=True)(trained)
        return loss, gradients, updated

    if microbatches == 1:
        return of(batch)
    parts = {name: value.reshape(microbatches, -1, *value.shape[1:]) for name, value in batch.items()}

    def add(
        total: tuple[Array, Weights, Weights], part: dict[str, Array]
    ) -> tuple[tuple[Array, Weights, Weights], None]:
        return jax.tree.map(jnp.add, total, of(part)), None

    shapes = jax.eval_shape(of, {name: value[0] for name, value in parts.items()})
    total, _ = jax.lax.scan(add, jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes), parts)
    return total


def apart(weights: Weights) -> tuple[Weights, Weights]:
    """Return the weights that are trained, and the running statistics."""
    statistics = {name: weight for name, weight in weights.items() if is_statistic(name)}
    return {name: weight for name, weight in weights.items() if name not in statistics}, statistics


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


KEEPING = optax.GradientTransformation(
    lambda weights: jax.tree.map(jnp.zeros_like, weights),
    lambda gradients, *_: (jax.tree.map(jnp.zeros_like, gradients), gradients),
)
"""No optimizer: it leaves the weights as they are, and keeps the gradients as its state."""


def training(
    loss_of: Callable[..., Any],
    optimizer: optax.GradientTransformation,
    microbatches: int,
    state: State,
    **batch: Array,
) -> tuple[State, Array]:
    """Return the state after one update and the loss before it; if gradients overflow, only the scale changes."""
    weights, moments, scale = state
    trained, _ = apart(weights)
    factor = 1.0 if scale is None else scale.scale
    loss, gradients, statistics = loss_and_gradients(loss_of, factor, microbatches, weights, batch)
    with jax.named_scope("optimizer"):
        if scale is not None:
            gradients = jax.tree.map(lambda gradient: gradient / factor, gradients)
            finite = jnp.stack([jnp.isfinite(gradient).all() for gradient in gradients.values()]).all()
            scale = scale.updated(finite)
        updates, new_moments = optimizer.update(gradients, moments, trained)
        new_trained = optax.apply_updates(trained, updates)
        if scale is not None:
            new_trained, new_moments = jax.tree.map(
                partial(jnp.where, finite), (new_trained, new_moments), (trained, moments)
            )
    return (new_trained | statistics, new_moments, scale), loss


def initial_state(weights: Weights, optimizer: optax.GradientTransformation, precision: str) -> State:
    """Return the weights, the optimizer's state, and for mixed fp16 the loss scale that PyTorch begins with."""
    scale = LossScale(jnp.float32(2**16), jnp.int32(0)) if precision == "mixed_fp16" else None
    return weights, jax.jit(optimizer.init)(apart(weights)[0]), scale


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


class TrainingStep(Generic[_State]):
    """The step that computes the loss of the next batch and updates the state, reusing its memory.

    `shardings` are those of the state on several devices, which it keeps.
    """

    def __init__(
        self, function: Callable[..., tuple[_State, Array]], state: _State, batches: Batches, shardings: Any = None
    ) -> None:
        self.state = state
        self._function = jax.jit(function, donate_argnums=0, out_shardings=(shardings, None))
        self._batches = batches

    def __call__(self) -> dict[str, Array]:
        """Run the step; returns the loss before the update."""
        self.state, loss = self._function(self.state, **next(self._batches))
        return {"loss": loss}
