"""Language models in JAX: their steps, and text generation, in phases and as an engine.

Passes of text generation are compiled, and change the donated cache in place.

Shapes: B batch, P prompt or pages, S positions of the cache, R batch · heads of keys and values, D head dimension, V
vocabulary.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from benchmarker import PRECISIONS, Case, Data, Engine, Workload
from benchmarker_plugins.frameworks.jax import AXIS, DTYPES, JaxFramework
from benchmarker_problems.attention.jax import (
    Attend,
    Kernel,
    attend,
    attend_to_rows,
    fused_kernel,
    recomputes_scores,
)
from benchmarker_problems.generation import PAGE, page_table, step_and_tokens
from benchmarker_problems.layers import Impl
from benchmarker_problems.layers.jax import cross_entropy
from benchmarker_problems.parallel import by_device, in_order
from benchmarker_problems.parallel.jax import division
from benchmarker_problems.quantization.jax import by_output
from benchmarker_problems.steps import jax as steps
from benchmarker_problems.steps.jax import Weights, apply

Keys = tuple[Array, Array]
"""Keys and values of a block: [R, S, D], of the layouts tried the one that XLA does not copy on a CPU; or pages
[pages · heads, 16, D]."""
Cache = tuple[Keys, ...]
NO_FUSED_CACHE = ({"impl": "fused", "phase": "decode"}, {"impl": "fused", "phase": "generate"})
"""JAX's fused attention does not fit such a cache."""
Model = Callable[..., Array]
"""From weights, tokens [B, T], the position of the first, the attention of each block, and the index in [T] of the last
token, which is otherwise T - 1, to its logits."""
Write = Callable[[Array, Array], Array]
"""From a cache and the keys or values [R, T, D] of tokens to the cache with them."""
Rows = Callable[[Array], Array]
"""From a cache to its keys or values [R, S, D]."""
LEAST_PROMPT = 16
"""The shortest length that an engine compiles for prompts."""


def attention_into(
    keys: Keys,
    position: Array | int,
    write: Write,
    impl: Impl,
    kernel: Kernel,
    written: list[Keys],
    rows: Rows = lambda each: each,
) -> Attend:
    """Return the attention of a block that writes keys and values to its cache, and appends that to `written`.

    Several tokens are the prompt, which is first and attends to itself. A single one is at `position`, which is one for
    all sequences or [R, 1, 1].
    """

    def attention(q_BTHD: Array, k_BTKD: Array, v_BTKD: Array) -> Array:
        with jax.named_scope("cache_write"):
            new_keys = [
                each.swapaxes(1, 2).reshape(-1, each.shape[1], each.shape[3]).astype(into.dtype)
                for each, into in zip((k_BTKD, v_BTKD), keys, strict=True)
            ]
            k, v = map(write, keys, new_keys)
            written.append((k, v))
        if q_BTHD.shape[1] > 1:
            return attend(q_BTHD, k_BTKD, v_BTKD, impl=impl, causal=True, kernel=kernel)
        return attend_to_rows(q_BTHD, k, v, position, impl, rows)

    return attention


def empty_cache(framework: JaxFramework, case: Case, shape: tuple[int, int, int, int]) -> Cache:
    """Return a cache of a shape: blocks, R, S and D."""
    blocks, *of_block = shape
    zeros = partial(jnp.zeros, of_block, DTYPES[PRECISIONS[case.precision].compute], device=framework.device)
    return tuple((zeros(), zeros()) for _ in range(blocks))


def put_weights(framework: JaxFramework, case: Case, problem: Any, data: Data) -> Weights:
    """Return the weights on the device; integers are those of quantised ones."""
    dtypes = {"i": DTYPES.get(problem.weight_type), "f": DTYPES[PRECISIONS[case.precision].parameter]}
    return {
        name: framework.put(by_output(name, weight), dtypes[weight.dtype.kind]) for name, weight in data.weights.items()
    }


def build(
    framework: JaxFramework, case: Case, problem: Any, data: Data, model_of: Callable[..., nn.Module]
) -> Workload:
    """Build a step: the logits; the loss and its gradients; or the loss and an update of the weights; or a phase.

    `model_of` returns the model with products in a type, a kernel of attention and, if devices divide each block, the
    axis along which they do.
    """
    p, kernel, dtype = problem, fused_kernel(case), DTYPES[PRECISIONS[case.precision].compute]
    if p.phase != "none":
        return workload(framework, case, p, data, partial(apply, model_of(dtype, kernel)))
    logits_of, loss_of = functions(model_of(dtype, kernel, *([AXIS] if case.parallel == "tp" else [])))
    fused = p.fused_widths()
    data = by_device(data, fused, case)
    return steps.workload(
        framework,
        case,
        data,
        "logits",
        logits_of,
        loss_of,
        terms=p.batch_size * p.seq_len,
        microbatches=p.microbatches,
        recomputed_flops=p.recomputed_flops(scores=recomputes_scores(p.impl, kernel)),
        division=division(case.parallel, framework.mesh, loss_of, data.weights, "h."),
        in_order=partial(in_order, fused=fused, case=case),
    )


def functions(model: nn.Module) -> tuple[Callable[..., Array], Callable[..., Array]]:
    """Return (weights, tokens) to logits and (weights, tokens, targets) to loss as functions."""

    def loss_of(weights: Weights, tokens: Array, targets: Array) -> Array:
        return cross_entropy(apply(model, weights, tokens), targets)

    return partial(apply, model), loss_of


def workload(framework: JaxFramework, case: Case, problem: Any, data: Data, model: Model) -> Workload:
    """Return the workload of a phase."""
    weights, cache = put_weights(framework, case, problem, data), empty_cache(framework, case, problem.cache_shape)
    forced, kernel = problem.decoding == "forced", fused_kernel(case)
    pages_RP = page_table(problem)
    table_RP = None if pages_RP is None else framework.put(pages_RP)

    def advance(
        weights: Weights, cache: Cache, sequence_BS: Array, tokens_BT: Array, position: Array
    ) -> tuple[Cache, tuple[Array, Array, Array]]:
        def write(into: Array, new_RTD: Array) -> Array:
            if table_RP is None:
                return jax.lax.dynamic_update_slice_in_dim(into, new_RTD, position, axis=1)
            positions_T = position + jnp.arange(new_RTD.shape[1])
            return into.at[table_RP[:, positions_T // PAGE], positions_T % PAGE].set(new_RTD, unique_indices=True)

        def rows(each: Array) -> Array:
            return each if table_RP is None else each[table_RP].reshape(len(table_RP), -1, each.shape[-1])

        written: list[Keys] = []
        attentions = [attention_into(keys, position, write, problem.impl, kernel, written, rows) for keys in cache]
        logits_BV = model(weights, tokens_BT, position, attentions)
        cache = tuple(written)
        with jax.named_scope("next_token"):
            position += tokens_BT.shape[1]
            if forced:
                return cache, (jax.lax.dynamic_slice_in_dim(sequence_BS, position, 1, axis=1), position, logits_BV)
            next_B = jnp.argmax(logits_BV, axis=-1).astype(tokens_BT.dtype)
            return cache, (next_B[:, None], position, next_B)

    compiled = jax.jit(advance, donate_argnums=1)

    def run(sequence_BS: Array, tokens_BT: Array, position: Array) -> tuple[Array, Array, Array]:
        nonlocal cache
        cache, result = compiled(weights, cache, sequence_BS, tokens_BT, position)
        return result

    def outputs(result: dict[str, Any]) -> Mapping[str, np.ndarray]:
        return {
            name: np.asarray(np.stack(value, axis=1) if isinstance(value, list) else value, np.float64)
            for name, value in result.items()
        }

    zero = framework.put(np.zeros((), np.int32))
    step, tokens = step_and_tokens(problem, data, framework.put, np.asarray, zero, run)
    return Workload(step, outputs, tokens=tokens)


def engine(framework: JaxFramework, case: Case, problem: Any, data: Data, model_of: Callable[..., nn.Module]) -> Engine:
    """Build a text-generation engine; `model_of` is that of `build`.

    Prompts are filled up to a power of two, so that few lengths are compiled; what is behind a prompt is masked until a
    new token overwrites it.
    """
    weights, cache = put_weights(framework, case, problem, data), empty_cache(framework, case, problem.cache_shape)
    slots, (_, rows, room, _) = problem.batch_size, problem.cache_shape
    heads, kernel = rows // slots, fused_kernel(case)
    model: Model = partial(apply, model_of(DTYPES[PRECISIONS[case.precision].compute], kernel))
    tokens_B = positions_B = framework.put(np.zeros(slots, np.int32))

    def filled(
        weights: Weights,
        cache: Cache,
        tokens_B: Array,
        positions_B: Array,
        slot: Array,
        prompt_1T: Array,
        length: Array,
    ) -> tuple[Cache, Array, Array, Array]:
        def write(into_RSD: Array, new_KTD: Array) -> Array:
            return jax.lax.dynamic_update_slice_in_dim(into_RSD, new_KTD, slot * heads, axis=0)

        written: list[Keys] = []
        attentions = [attention_into(keys, 0, write, problem.impl, kernel, written) for keys in cache]
        logits_1V = model(weights, prompt_1T, 0, attentions, length - 1)
        with jax.named_scope("next_token"):
            (token,) = jnp.argmax(logits_1V, axis=-1).astype(tokens_B.dtype)
        position = jnp.minimum(length, room - 1)
        return tuple(written), tokens_B.at[slot].set(token), positions_B.at[slot].set(position), token

    def advanced(weights: Weights, cache: Cache, tokens_B: Array, positions_B: Array) -> tuple[Cache, Array, Array]:
        positions_R = jnp.repeat(positions_B, heads)

        def write(into_RSD: Array, new_R1D: Array) -> Array:
            return into_RSD.at[jnp.arange(rows), positions_R].set(new_R1D[:, 0], unique_indices=True)

        written: list[Keys] = []
        at_R11 = positions_R[:, None, None]
        attentions = [attention_into(keys, at_R11, write, problem.impl, kernel, written) for keys in cache]
        logits_BV = model(weights, tokens_B[:, None], positions_B, attentions)
        with jax.named_scope("next_token"):
            next_B = jnp.argmax(logits_BV, axis=-1).astype(tokens_B.dtype)
        return tuple(written), next_B, jnp.minimum(positions_B + 1, room - 1)

    fill_compiled, advance_compiled = jax.jit(filled, donate_argnums=1), jax.jit(advanced, donate_argnums=1)

    def fill(slot: int, prompt_P: np.ndarray) -> int:
        nonlocal cache, tokens_B, positions_B
        length = len(prompt_P)
        padded_1T = np.zeros((1, min(max(LEAST_PROMPT, 1 << (length - 1).bit_length()), room)), np.int32)
        padded_1T[0, :length] = prompt_P
        cache, tokens_B, positions_B, token = fill_compiled(
            weights, cache, tokens_B, positions_B, np.int32(slot), padded_1T, np.int32(length)
        )
        return int(token)

    def decode() -> np.ndarray:
        nonlocal cache, tokens_B, positions_B
        cache, tokens_B, positions_B = advance_compiled(weights, cache, tokens_B, positions_B)
        return np.asarray(tokens_B)

    return Engine(fill, decode, slots, room, problem.vocab_size)
