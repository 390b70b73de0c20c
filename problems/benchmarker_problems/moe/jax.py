"""Mixture of experts in JAX with Flax.

XLA has a grouped product on accelerators. On a CPU it multiplies all rows with all experts instead, so that
`--dispatch=grouped` takes n_expert times the FLOPs of the formula there.

Shapes: B batch, T sequence, C width of the model, F width within an expert, V vocabulary, E experts, K experts of a
token, N tokens, R rows of experts (a row is one of the N·K choices, or a slot for it).

In mixed precision, fp32 weights are cast for each product. In 16-bit types RMSNorm and softmax accumulate in fp32, and
the loss is fp32. Flax creates a scope for each of its modules; the other scopes are set explicitly.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array

from benchmarker import PRECISIONS, Case, Data, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.jax import DTYPES, JaxFramework
from benchmarker_problems.attention.jax import FUSED_EXCLUSIONS, Kernel, attend, fused_kernel, recomputes_scores
from benchmarker_problems.layers.jax import cross_entropy, rope, swiglu
from benchmarker_problems.layers.reference import rope_tables
from benchmarker_problems.moe import MoeParams, recomputed_flops
from benchmarker_problems.moe.reference import RMS_NORM_EPS
from benchmarker_problems.steps import DONE
from benchmarker_problems.steps.jax import Weights, apply, workload


@hookimpl
def describe_workload() -> Support:
    """Return all precisions, except those that JAX's fused attention does not support."""
    return Support(DONE, exclusions=FUSED_EXCLUSIONS)


class Block(nn.Module):
    """Attention and experts, each on its normalised input and with a residual connection."""

    params: MoeParams
    dtype: Any
    kernel: Kernel

    @nn.compact
    def __call__(self, x_BTC: Array, cos_Td: Array, sin_Td: Array) -> Array:
        """Apply the block."""
        p = self.params
        linear = partial(nn.Dense, use_bias=False, dtype=self.dtype)
        rms_norm = partial(nn.RMSNorm, epsilon=RMS_NORM_EPS)

        h_BTC = rms_norm(name="norm_1")(x_BTC)
        qkv_BTE = linear(sum(p.heads) * p.head_dim, name="attn_qkv")(h_BTC)
        qk_BTHD, v_BTKD = jnp.split(qkv_BTE.reshape(*x_BTC.shape[:2], -1, p.head_dim), [sum(p.heads[:2])], axis=2)
        with jax.named_scope("rope"):
            q_BTHD, k_BTKD = jnp.split(rope(qk_BTHD, cos_Td, sin_Td), [p.n_head], axis=2)
        heads_BTHD = attend(q_BTHD, k_BTKD, v_BTKD, impl=p.impl, causal=True, kernel=self.kernel)
        attended_BTC = linear(p.d_model, name="attn_proj")(heads_BTHD.reshape(x_BTC.shape))
        with jax.named_scope("attn_proj"):
            x_BTC = x_BTC + attended_BTC

        h_NC = rms_norm(name="norm_2")(x_BTC).reshape(-1, p.d_model)
        route_dtype = jnp.promote_types(self.dtype, jnp.float32)
        scores_NE = nn.Dense(p.n_expert, use_bias=False, dtype=route_dtype, name="moe_router")(h_NC)
        with jax.named_scope("moe_router"):
            scores_NK, chosen_NK = jax.lax.top_k(scores_NE, p.top_k)
            gates_NK = jax.nn.softmax(scores_NK).astype(self.dtype)
        with jax.named_scope("moe_dispatch"):
            choice_R, row_NK, sizes_E = slots(chosen_NK, p) if p.dispatch == "capacity" else groups(chosen_NK, p)
            rows_RC = h_NC.astype(self.dtype).at[choice_R // p.top_k].get(mode="fill", fill_value=0)
        gate_up_RE = Experts(p, 2 * p.d_ff, self.dtype, name="moe_fc")(rows_RC, sizes_E)
        with jax.named_scope("moe_swiglu"):
            inner_RF = swiglu(gate_up_RE)
        mixed_RC = Experts(p, p.d_model, self.dtype, name="moe_proj")(inner_RF, sizes_E)
        with jax.named_scope("moe_combine"):
            mixed_NKC = mixed_RC.at[row_NK].get(mode="fill", fill_value=0)
            mixed_NC = (gates_NK[..., None] * mixed_NKC).sum(axis=1)
            return x_BTC + mixed_NC.reshape(x_BTC.shape)


class Experts(nn.Module):
    """A product of each expert's rows with its weights."""

    params: MoeParams
    outputs: int
    dtype: Any

    @nn.compact
    def __call__(self, rows_RI: Array, sizes_E: Array | None) -> Array:
        """Return [R, O] of the rows, sorted by expert in groups of the given sizes, or in equal ones."""
        shape = (self.params.n_expert, rows_RI.shape[1], self.outputs)
        kernel_EIO = self.param("kernel", nn.initializers.normal(0.02), shape).astype(self.dtype)
        if sizes_E is not None:
            return jax.lax.ragged_dot(rows_RI, kernel_EIO, sizes_E)
        return (rows_RI.reshape(shape[0], -1, shape[1]) @ kernel_EIO).reshape(-1, self.outputs)


def groups(chosen_NK: Array, params: MoeParams) -> tuple[Array, Array, Array]:
    """Sort the choices by expert: return the choice of each row, the row of each choice, and the rows of each expert.

    A choice is its index in [N, K].
    """
    sent_RE = (chosen_NK.reshape(-1, 1) == jnp.arange(params.n_expert)).astype(jnp.int32)
    sizes_E = sent_RE.sum(axis=0)
    first_E = jnp.cumsum(sizes_E) - sizes_E
    row_R = (sent_RE * (jnp.cumsum(sent_RE, axis=0) - 1 + first_E)).sum(axis=1)
    choice_R = jnp.zeros_like(row_R).at[row_R].set(jnp.arange(row_R.size), unique_indices=True)
    return choice_R, row_R.reshape(chosen_NK.shape), sizes_E


def slots(chosen_NK: Array, params: MoeParams) -> tuple[Array, Array, None]:
    """Give each choice a slot among those of its expert and sequence, in the order of the sequence.

    Return the choice in each slot and the slot of each choice. That of an empty slot, and that of a choice which is
    dropped, are one beyond the last.
    """
    p = params
    chosen_BS = chosen_NK.reshape(-1, p.seq_len * p.top_k)
    sent_BSE = (chosen_BS[..., None] == jnp.arange(p.n_expert)).astype(jnp.int32)
    place_BS = (sent_BSE * (jnp.cumsum(sent_BSE, axis=1) - 1)).sum(axis=2)
    first_BS = (chosen_BS * len(chosen_BS) + jnp.arange(len(chosen_BS))[:, None]) * p.capacity
    slot_count = p.n_expert * len(chosen_BS) * p.capacity
    slot_S = jnp.where(place_BS < p.capacity, first_BS + place_BS, slot_count).ravel()
    choice_R = jnp.full(slot_count, slot_S.size).at[slot_S].set(jnp.arange(slot_S.size), mode="drop")
    return choice_R, slot_S.reshape(chosen_NK.shape), None


class MoeModel(nn.Module):
    """The whole model."""

    params: MoeParams
    dtype: Any
    kernel: Kernel

    @nn.compact
    def __call__(self, tokens_BT: Array) -> Array:
        """Return the logits of every position, [B, T, V]."""
        p = self.params
        wte_VC = self.param("wte", nn.initializers.normal(0.02), (p.vocab_size, p.d_model))
        cos_Td, sin_Td = map(jnp.asarray, rope_tables(tokens_BT.shape[1], p.head_dim, p.rope_theta))
        with jax.named_scope("embed"):
            x_BTC = wte_VC[tokens_BT]
        block = nn.remat(Block) if p.recompute else Block
        for layer in range(p.n_layer):
            x_BTC = block(p, self.dtype, self.kernel, name=f"h.{layer}")(x_BTC, cos_Td, sin_Td)
        x_BTC = nn.RMSNorm(epsilon=RMS_NORM_EPS, name="norm_f")(x_BTC)
        return nn.Dense(p.vocab_size, use_bias=False, dtype=self.dtype, name="lm_head")(x_BTC)


@hookimpl
def build_workload(framework: JaxFramework, case: Case, params: MoeParams, data: Data) -> Workload:
    """Build a step: the logits; the loss and its gradients; or the loss and an update of the weights."""
    p, kernel = params, fused_kernel(case)
    logits_of, loss_of = functions(p, DTYPES[PRECISIONS[case.precision].compute], kernel)
    return workload(
        framework,
        case,
        data,
        "logits",
        logits_of,
        loss_of,
        terms=p.batch_size * p.seq_len,
        microbatches=p.microbatches,
        recomputed_flops=recomputed_flops(p, scores=recomputes_scores(p.impl, kernel)),
    )


def functions(params: MoeParams, dtype: Any, kernel: Kernel) -> tuple[Callable[..., Array], Callable[..., Array]]:
    """Return (weights, tokens) to logits and (weights, tokens, targets) to loss as functions; products in `dtype`."""
    model = MoeModel(params, dtype, kernel)

    def loss_of(weights: Weights, tokens: Array, targets: Array) -> Array:
        return cross_entropy(apply(model, weights, tokens), targets)

    return partial(apply, model), loss_of
