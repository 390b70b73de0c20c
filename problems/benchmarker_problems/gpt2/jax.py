"""GPT-2 in JAX with Flax. Shapes: B batch, T sequence, C width of the model, F width within the MLP, V vocabulary.

In mixed precision, fp32 weights are cast for each product. In 16-bit types LayerNorm and softmax accumulate in fp32,
and the loss is fp32. Flax creates a scope for each of its modules; the other scopes are set explicitly.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import cycle
from typing import Any, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training.dynamic_scale import DynamicScale
from flax.traverse_util import unflatten_dict
from jax import Array

from benchmarker import PRECISIONS, Case, Data, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.jax import DTYPES, JaxFramework
from benchmarker_problems.attention import product_flops
from benchmarker_problems.attention.jax import FUSED_EXCLUSIONS, Kernel, attend, fused_kernel, recomputes_scores
from benchmarker_problems.gpt2 import DONE, Gpt2Params, fixed_loss_scale
from benchmarker_problems.gpt2.reference import (
    ADAM_EPS,
    BETA_1,
    BETA_2,
    LAYER_NORM_EPS,
    LEARNING_RATE,
    WEIGHT_DECAY,
)

Weights = dict[str, Array]
Batches = Iterator[dict[str, Array]]
Step = Callable[[], dict[str, Array]]
State = tuple[Weights, Any, DynamicScale | None]

OPTIMIZER = optax.adamw(
    LEARNING_RATE,
    b1=BETA_1,
    b2=BETA_2,
    eps=ADAM_EPS,
    weight_decay=WEIGHT_DECAY,
    mask=lambda weights: jax.tree.map(lambda weight: weight.ndim == 2, weights),
)


@hookimpl
def describe_workload() -> Support:
    """Return all precisions, except those that JAX's fused attention does not support."""
    return Support(DONE, exclusions=FUSED_EXCLUSIONS)


class Block(nn.Module):
    """Attention and MLP, each on its normalised input and with a residual connection."""

    params: Gpt2Params
    dtype: Any
    kernel: Kernel

    @nn.compact
    def __call__(self, x_BTC: Array) -> Array:
        """Apply the block."""
        p = self.params
        linear = partial(nn.Dense, dtype=self.dtype)
        layer_norm = partial(nn.LayerNorm, epsilon=LAYER_NORM_EPS)

        h_BTC = layer_norm(name="ln_1")(x_BTC)
        qkv_BTE = linear(3 * p.d_model, name="attn_qkv")(h_BTC)
        q_BTHD, k_BTHD, v_BTHD = (
            part.reshape(*part.shape[:2], p.n_head, p.head_dim) for part in jnp.split(qkv_BTE, 3, axis=-1)
        )
        heads_BTHD = attend(q_BTHD, k_BTHD, v_BTHD, impl=p.impl, causal=True, kernel=self.kernel)
        attended_BTC = linear(p.d_model, name="attn_proj")(heads_BTHD.reshape(x_BTC.shape))
        with jax.named_scope("attn_proj"):
            x_BTC = x_BTC + attended_BTC

        h_BTC = layer_norm(name="ln_2")(x_BTC)
        inner_BTF = linear(p.d_ff, name="mlp_fc")(h_BTC)
        with jax.named_scope("mlp_gelu"):
            inner_BTF = nn.gelu(inner_BTF, approximate=True)
        mlp_BTC = linear(p.d_model, name="mlp_proj")(inner_BTF)
        with jax.named_scope("mlp_proj"):
            return x_BTC + mlp_BTC


class Gpt2Model(nn.Module):
    """The whole model; the output head uses the weights of the embedding."""

    params: Gpt2Params
    dtype: Any
    kernel: Kernel

    @nn.compact
    def __call__(self, tokens_BT: Array) -> Array:
        """Return the logits of every position, [B, T, V]."""
        p = self.params
        wte_VC = self.param("wte", nn.initializers.normal(0.02), (p.vocab_size, p.d_model))
        wpe_PC = self.param("wpe", nn.initializers.normal(0.02), (p.positions, p.d_model))
        with jax.named_scope("embed"):
            x_BTC = wte_VC[tokens_BT] + wpe_PC[: p.seq_len]
        for layer in range(p.n_layer):
            x_BTC = Block(p, self.dtype, self.kernel, name=f"h.{layer}")(x_BTC)
        x_BTC = nn.LayerNorm(epsilon=LAYER_NORM_EPS, name="ln_f")(x_BTC)
        with jax.named_scope("lm_head"):
            return x_BTC.astype(self.dtype) @ wte_VC.astype(self.dtype).T


@hookimpl
def build_workload(framework: JaxFramework, case: Case, params: Gpt2Params, data: Data) -> Workload:
    """Build a step: the logits; the loss and its gradients; or the loss and an update of the weights."""
    p, types = params, PRECISIONS[case.precision]
    kernel = fused_kernel(case)
    logits_of, loss_of = functions(p, DTYPES[types.compute], kernel)
    weights = {name: framework.put(weight, DTYPES[types.parameter]) for name, weight in data.weights.items()}
    batches = cycle([{name: framework.put(value) for name, value in batch.items()} for batch in data.batches])
    loss_scale = fixed_loss_scale(p) if types.compute == "fp16" else 1.0
    scale_left = loss_scale if types.parameter == "fp16" else 1.0

    if case.mode == "inference":
        step = inference_step(logits_of, weights, batches)
    elif case.mode == "forward_backward":
        step = forward_backward_step(forward_backward(loss_of, loss_scale, scale_left), weights, batches)
    else:
        step = training_step(loss_of, initial_state(weights, case.precision), batches)

    def outputs(result: dict[str, Array]) -> Mapping[str, np.ndarray]:
        return {
            name: np.asarray(value, np.float64) / (scale_left if name.startswith("d_") else 1)
            for name, value in result.items()
        }

    recomputes = case.mode != "inference" and recomputes_scores(p.impl, kernel)
    scores_flops = p.n_layer * product_flops(p.batch_size, p.n_head, p.seq_len, p.head_dim)
    return Workload(step, outputs, scores_flops if recomputes else 0)


def functions(params: Gpt2Params, dtype: Any, kernel: Kernel) -> tuple[Callable[..., Array], Callable[..., Array]]:
    """Return (weights, tokens) to logits and (weights, tokens, targets) to loss as functions; products in `dtype`."""
    model = Gpt2Model(params, dtype, kernel)

    def logits_of(weights: Weights, tokens: Array) -> Array:
        nested = unflatten_dict({tuple(name.rsplit(".", 2)): weight for name, weight in weights.items()})
        return cast("Array", model.apply({"params": nested}, tokens))

    def loss_of(weights: Weights, tokens: Array, targets: Array) -> Array:
        logits_BTV = logits_of(weights, tokens)
        with jax.named_scope("loss"):
            logits_BTV = logits_BTV.astype(jnp.promote_types(logits_BTV.dtype, jnp.float32))
            return cast("Array", optax.softmax_cross_entropy_with_integer_labels(logits_BTV, targets).mean())

    return logits_of, loss_of


def forward_backward(
    loss_of: Callable[..., Array], loss_scale: float, scale_left: float
) -> Callable[..., dict[str, Array]]:
    """Return the function from (weights, tokens, targets) to the loss and its gradients.

    The backward pass uses the loss times `loss_scale`; the gradients returned are the true ones times `scale_left`.
    """

    def function(weights: Weights, tokens: Array, targets: Array) -> dict[str, Array]:
        def scaled_loss_of(weights: Weights) -> tuple[Array, Array]:
            loss = loss_of(weights, tokens, targets)
            return loss * loss_scale, loss

        gradients, loss = jax.grad(scaled_loss_of, has_aux=True)(weights)
        unscale = scale_left / loss_scale
        return {"loss": loss, **{f"d_{name}": gradient * unscale for name, gradient in gradients.items()}}

    return function


def training(state: State, tokens: Array, targets: Array, *, loss_of: Callable[..., Array]) -> tuple[State, Array]:
    """Return the state after one AdamW update and the loss before it; if gradients overflow, only the scale changes."""
    weights, moments, scaler = state
    if scaler is None:
        loss, gradients = jax.value_and_grad(loss_of)(weights, tokens, targets)
    else:
        scaler, finite, loss, gradients = scaler.value_and_grad(loss_of)(weights, tokens, targets)
    with jax.named_scope("optimizer"):
        updates, new_moments = OPTIMIZER.update(gradients, moments, weights)
        new_weights = optax.apply_updates(weights, updates)
        if scaler is not None:
            new_weights, new_moments = jax.tree.map(
                partial(jnp.where, finite), (new_weights, new_moments), (weights, moments)
            )
    return (new_weights, new_moments, scaler), loss


def initial_state(weights: Weights, precision: str) -> State:
    """Return the weights, AdamW's moments, and for mixed fp16 the dynamic loss scale with PyTorch's settings."""
    scaler = None
    if precision == "mixed_fp16":
        # Flax increases the scale one step after the given interval, so this equals PyTorch's 2000.
        scaler = DynamicScale(growth_interval=1999, fin_steps=jnp.int32(0), scale=jnp.float32(2**16))
    return weights, jax.jit(OPTIMIZER.init)(weights), scaler


def inference_step(logits_of: Callable[..., Array], weights: Weights, batches: Batches) -> Step:
    """Return the step that computes the logits of the next batch."""
    function = jax.jit(logits_of)
    return lambda: {"logits": function(weights, next(batches)["tokens"])}


def forward_backward_step(function: Callable[..., dict[str, Array]], weights: Weights, batches: Batches) -> Step:
    """Return the step that computes the loss of the next batch and its gradients."""
    function = jax.jit(function)
    return lambda: function(weights, **next(batches))


def training_step(loss_of: Callable[..., Array], state: State, batches: Batches) -> Step:
    """Return the step that computes the loss of the next batch and updates the state, reusing its memory."""
    function = jax.jit(partial(training, loss_of=loss_of), donate_argnums=0)

    def step() -> dict[str, Array]:
        nonlocal state
        state, loss = function(state, **next(batches))
        return {"loss": loss}

    return step
