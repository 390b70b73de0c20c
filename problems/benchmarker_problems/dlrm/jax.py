"""DLRM in JAX. Shapes: B batch, S tables, P indices of a bag, D width of a row, I inputs, N vectors, Q pairs of them.

In mixed precision, fp32 weights are cast for each product. In 16-bit types the loss is fp32. The state of training is
donated, so that the rows looked up are updated in place.
"""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import cycle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from benchmarker import PRECISIONS, Case, Data, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.jax import DTYPES, JaxFramework
from benchmarker_problems.dlrm import Dlrm, pair_positions
from benchmarker_problems.dlrm.reference import BAGS, LEARNING_RATE, TABLES
from benchmarker_problems.steps import DONE, fixed_loss_scale
from benchmarker_problems.steps.jax import (
    TrainingStep,
    Weights,
    forward_backward,
    forward_backward_step,
    inference_step,
    loss_and_gradients,
)


@hookimpl
def describe_workload() -> Support:
    """Return all precisions of DLRM."""
    return Support(DONE)


def pool(tables_RD: Array, indices_BSP: Array) -> Array:
    """Return the sum of the rows of each bag, [B, S, D]."""
    with jax.named_scope("embed"):
        return tables_RD.at[indices_BSP].get(mode="promise_in_bounds").sum(axis=2)


def logits(problem: Dlrm, dtype: Any, weights: Weights, dense_BI: Array) -> Array:
    """Return the logits, [B], from the weights of the MLPs and the bags."""
    p = problem

    def linear(layer: str, x_I: Array) -> Array:
        kernel_IO, bias_O = (weights[f"{layer}.{part}"].astype(dtype) for part in ("kernel", "bias"))
        return x_I.astype(dtype) @ kernel_IO + bias_O

    bottom_BD = dense_BI
    with jax.named_scope("bottom_mlp"):
        for number in range(len(p.bottom_widths) - 1):
            bottom_BD = jax.nn.relu(linear(f"bottom.{number}", bottom_BD))
    with jax.named_scope("interaction"):
        vectors_BND = jnp.concatenate([bottom_BD[:, None], weights[BAGS].astype(dtype)], axis=1)
        products_BNN = jnp.einsum("bnd,bmd->bnm", vectors_BND, vectors_BND)
        pairs_BQ = (
            products_BNN.reshape(len(dense_BI), -1)
            .at[:, pair_positions(p.vectors)]
            .get(mode="promise_in_bounds", unique_indices=True, indices_are_sorted=True)
        )
        x_BI = jnp.concatenate([bottom_BD, pairs_BQ], axis=1)
    with jax.named_scope("top_mlp"):
        last = len(p.top_widths) - 2
        for number in range(last):
            x_BI = jax.nn.relu(linear(f"top.{number}", x_BI))
        return linear(f"top.{last}", x_BI)[:, 0]


def binary_cross_entropy(logits_B: Array, targets_B: Array) -> Array:
    """Return the mean binary cross-entropy, in fp32 or fp64."""
    with jax.named_scope("loss"):
        logits_B = logits_B.astype(jnp.promote_types(logits_B.dtype, jnp.float32))
        return optax.sigmoid_binary_cross_entropy(logits_B, targets_B.astype(logits_B.dtype)).mean()


def functions(problem: Dlrm, dtype: Any) -> tuple[Callable[..., Array], Callable[..., Array]]:
    """Return (weights, dense, indices) to logits and (weights with bags, dense, targets) to loss as functions."""

    def logits_of(weights: Weights, dense: Array, indices: Array) -> Array:
        return logits(problem, dtype, with_bags(weights, indices), dense)

    def loss_of(weights: Weights, dense: Array, targets: Array) -> Array:
        return binary_cross_entropy(logits(problem, dtype, weights, dense), targets)

    return logits_of, loss_of


def with_bags(weights: Weights, indices_BSP: Array) -> Weights:
    """Return the weights with the bags in place of the tables."""
    mlps = {name: weight for name, weight in weights.items() if name != TABLES}
    return mlps | {BAGS: pool(weights[TABLES], indices_BSP)}


def gradients_step(
    loss_of: Callable[..., Array],
    loss_scale: float,
    scale_left: float,
    weights: Weights,
    indices: Array,
    **batch: Array,
) -> dict[str, Array]:
    """Return the loss and the gradients of MLPs and bags."""
    return forward_backward(loss_of, loss_scale, scale_left, 1, with_bags(weights, indices), **batch)


def training(
    loss_of: Callable[..., Array], loss_scale: float, weights: Weights, indices: Array, **batch: Array
) -> tuple[Weights, Array]:
    """Return the weights after an SGD step and the loss before it; the gradients are those of the scaled loss."""
    rate = LEARNING_RATE / loss_scale
    loss, gradients, _ = loss_and_gradients(loss_of, loss_scale, 1, with_bags(weights, indices), batch)
    d_bags_BSD = gradients.pop(BAGS)
    with jax.named_scope("optimizer"):
        updated = {name: weights[name] - rate * gradient for name, gradient in gradients.items()}
    with jax.named_scope("embed_update"):
        tables_RD = weights[TABLES].at[indices].add(-rate * d_bags_BSD[:, :, None], mode="promise_in_bounds")
    return updated | {TABLES: tables_RD}, loss


@hookimpl
def build_workload(framework: JaxFramework, case: Case, problem: Dlrm, data: Data) -> Workload:
    """Build a step: the logits; the loss and its gradients; or the loss and an update of the weights."""
    types = PRECISIONS[case.precision]
    dtype = DTYPES[types.parameter]

    def put(values: Mapping[str, np.ndarray]) -> dict[str, Array]:
        return {name: framework.put(value, None if name == "indices" else dtype) for name, value in values.items()}

    weights, batches = put(data.weights), cycle([put(batch) for batch in data.batches])
    logits_of, loss_of = functions(problem, DTYPES[types.compute])
    loss_scale = fixed_loss_scale(problem.batch_size) if types.compute == "fp16" else 1.0
    scale_left = loss_scale if types.parameter == "fp16" else 1.0
    if case.mode == "inference":
        step = inference_step("logits", logits_of, weights, batches, ("dense", "indices"))
    elif case.mode == "forward_backward":
        step = forward_backward_step(partial(gradients_step, loss_of, loss_scale, scale_left), weights, batches)
    else:
        step = TrainingStep(partial(training, loss_of, loss_scale), weights, batches)

    def outputs(result: dict[str, Array]) -> Mapping[str, np.ndarray]:
        return {
            name: np.asarray(value, np.float64) / (scale_left if name.startswith("d_") else 1)
            for name, value in result.items()
        }

    return Workload(step, outputs)
