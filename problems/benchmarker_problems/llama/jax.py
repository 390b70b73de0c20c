"""Llama in JAX with Flax. Shapes: B batch, T sequence, C width of the model, F width within the MLP."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
from jax import Array

from benchmarker import Case, Data, Engine, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.jax import JaxFramework
from benchmarker_problems.attention.jax import Kernel
from benchmarker_problems.decoder.jax import SUPPORT, model_of
from benchmarker_problems.generation import jax as generation
from benchmarker_problems.layers.jax import devices_along, summing, swiglu
from benchmarker_problems.llama import Llama
from benchmarker_problems.parallel import STRATEGIES
from benchmarker_problems.quantization.jax import dense


@hookimpl
def describe_workload() -> Support:
    """Return all precisions, except those that JAX's fused attention does not support."""
    return replace(SUPPORT, parallel=STRATEGIES)


def mlp(h_BTC: Array, x_BTC: Array, problem: Llama, dtype: Any, axis: str | None = None) -> Array:
    """Return the sum of the MLP of the normalised input and the residual; devices along an axis divide its width."""
    linear = partial(dense(problem), use_bias=False, dtype=dtype)
    gate_up_BTE = linear(2 * problem.d_ff // devices_along(axis), name="mlp_fc")(h_BTC)
    with jax.named_scope("mlp_swiglu"):
        inner_BTF = swiglu(gate_up_BTE)
    mlp_BTC: Array = summing(linear, axis)(problem.d_model, name="mlp_proj")(inner_BTF)
    with jax.named_scope("mlp_proj"):
        return x_BTC + mlp_BTC


@hookimpl
def build_workload(framework: JaxFramework, problem: Llama, case: Case, data: Data) -> Workload:
    """Build a step: the logits; the loss and its gradients; or the loss and an update of the weights."""
    return generation.build(framework, case, problem, data, partial(model_of, problem, mlp))


@hookimpl
def build_engine(framework: JaxFramework, case: Case, problem: Llama, data: Data) -> Engine:
    """Build a text-generation engine."""
    return generation.engine(framework, case, problem, data, partial(model_of, problem, mlp))


def functions(problem: Llama, dtype: Any, kernel: Kernel) -> tuple[Callable[..., Array], Callable[..., Array]]:
    """Return (weights, tokens) to logits and (weights, tokens, targets) to loss as functions; products in `dtype`."""
    return generation.functions(model_of(problem, mlp, dtype, kernel))
