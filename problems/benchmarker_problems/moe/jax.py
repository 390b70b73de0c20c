"""Mixture of experts in JAX with Flax.

XLA has a grouped product on accelerators. On a CPU it multiplies all rows with all experts instead, so that
`--dispatch=grouped` takes n_expert times the FLOPs of the formula there.

Shapes: B batch, T sequence, C width of the model, F width within an expert, E experts, K experts of a token, N tokens,
R rows of experts (a row is one of the N·K choices, or a slot for it).
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array

from benchmarker import Case, Data, Engine, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.jax import JaxFramework
from benchmarker_problems.attention.jax import Kernel
from benchmarker_problems.decoder.jax import SUPPORT, model_of
from benchmarker_problems.generation import jax as generation
from benchmarker_problems.layers.jax import swiglu
from benchmarker_problems.moe import Moe
from benchmarker_problems.quantization.jax import dequantized, kernel


@hookimpl
def describe_workload() -> Support:
    """Return all precisions, except those that JAX's fused attention does not support."""
    return SUPPORT


def mixture(h_BTC: Array, x_BTC: Array, problem: Moe, dtype: Any) -> Array:
    """Return the sum of the experts of the normalised input, weighted by the router, and the residual."""
    p, h_NC = problem, h_BTC.reshape(-1, problem.d_model)
    route_dtype = jnp.promote_types(dtype, jnp.float32)
    scores_NE = nn.Dense(p.n_expert, use_bias=False, dtype=route_dtype, name="moe_router")(h_NC)
    with jax.named_scope("moe_router"):
        scores_NK, chosen_NK = jax.lax.top_k(scores_NE, p.top_k)
        gates_NK = jax.nn.softmax(scores_NK).astype(dtype)
    with jax.named_scope("moe_dispatch"):
        choice_R, row_NK, sizes_E = slots(chosen_NK, p) if p.dispatch == "capacity" else groups(chosen_NK, p)
        rows_RC = h_NC.astype(dtype).at[choice_R // p.top_k].get(mode="fill", fill_value=0)
    gate_up_RE = Experts(p, 2 * p.d_ff, dtype, name="moe_fc")(rows_RC, sizes_E)
    with jax.named_scope("moe_swiglu"):
        inner_RF = swiglu(gate_up_RE)
    mixed_RC = Experts(p, p.d_model, dtype, name="moe_proj")(inner_RF, sizes_E)
    with jax.named_scope("moe_combine"):
        mixed_NKC = mixed_RC.at[row_NK].get(mode="fill", fill_value=0)
        mixed_NC = (gates_NK[..., None] * mixed_NKC).sum(axis=1)
        return x_BTC + mixed_NC.reshape(x_BTC.shape)


class Experts(nn.Module):
    """A product of each expert's rows with its weights."""

    problem: Moe
    outputs: int
    dtype: Any

    @nn.compact
    def __call__(self, rows_RI: Array, sizes_E: Array | None) -> Array:
        """Return [R, O] of the rows, sorted by expert in groups of the given sizes, or in equal ones."""
        shape = (self.problem.n_expert, rows_RI.shape[1], self.outputs)
        if self.problem.weight_type == "full":
            kernel_EIO = self.param("kernel", nn.initializers.normal(0.02), shape).astype(self.dtype)
        else:
            kernel_EIO = dequantized(*kernel(self, shape, self.problem.weight_type), self.dtype)
        if sizes_E is not None:
            return jax.lax.ragged_dot(rows_RI, kernel_EIO, sizes_E)
        return (rows_RI.reshape(shape[0], -1, shape[1]) @ kernel_EIO).reshape(-1, self.outputs)


def groups(chosen_NK: Array, problem: Moe) -> tuple[Array, Array, Array]:
    """Sort the choices by expert: return the choice of each row, the row of each choice, and the rows of each expert.

    A choice is its index in [N, K].
    """
    sent_RE = (chosen_NK.reshape(-1, 1) == jnp.arange(problem.n_expert)).astype(jnp.int32)
    sizes_E = sent_RE.sum(axis=0)
    first_E = jnp.cumsum(sizes_E) - sizes_E
    row_R = (sent_RE * (jnp.cumsum(sent_RE, axis=0) - 1 + first_E)).sum(axis=1)
    choice_R = jnp.zeros_like(row_R).at[row_R].set(jnp.arange(row_R.size), unique_indices=True)
    return choice_R, row_R.reshape(chosen_NK.shape), sizes_E


def slots(chosen_NK: Array, problem: Moe) -> tuple[Array, Array, None]:
    """Give each choice a slot among those of its expert and sequence, in the order of the sequence.

    Return the choice in each slot and the slot of each choice. That of an empty slot, and that of a choice which is
    dropped, are one beyond the last.
    """
    p = problem
    chosen_BS = chosen_NK.reshape(-1, p.seq_len * p.top_k)
    sent_BSE = (chosen_BS[..., None] == jnp.arange(p.n_expert)).astype(jnp.int32)
    place_BS = (sent_BSE * (jnp.cumsum(sent_BSE, axis=1) - 1)).sum(axis=2)
    first_BS = (chosen_BS * len(chosen_BS) + jnp.arange(len(chosen_BS))[:, None]) * p.capacity
    slot_count = p.n_expert * len(chosen_BS) * p.capacity
    slot_S = jnp.where(place_BS < p.capacity, first_BS + place_BS, slot_count).ravel()
    choice_R = jnp.full(slot_count, slot_S.size).at[slot_S].set(jnp.arange(slot_S.size), mode="drop")
    return choice_R, slot_S.reshape(chosen_NK.shape), None


@hookimpl
def build_workload(framework: JaxFramework, problem: Moe, case: Case, data: Data) -> Workload:
    """Build a step: the logits; the loss and its gradients; or the loss and an update of the weights."""
    return generation.build(framework, case, problem, data, partial(model_of, problem, mixture))


@hookimpl
def build_engine(framework: JaxFramework, case: Case, problem: Moe, data: Data) -> Engine:
    """Build a text-generation engine."""
    return generation.engine(framework, case, problem, data, partial(model_of, problem, mixture))


def functions(problem: Moe, dtype: Any, kernel: Kernel) -> tuple[Callable[..., Array], Callable[..., Array]]:
    """Return (weights, tokens) to logits and (weights, tokens, targets) to loss as functions; products in `dtype`."""
    return generation.functions(model_of(problem, mixture, dtype, kernel))
