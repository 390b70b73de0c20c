"""Text generation in JAX: every pass is compiled, and the cache is donated, so that it is changed in place.

Shapes: B batch, P prompt or pages, S positions of the cache, R batch · heads of keys and values, D head dimension, V
vocabulary.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from benchmarker import PRECISIONS, Case, Data, Workload
from benchmarker_plugins.frameworks.jax import DTYPES, JaxFramework
from benchmarker_problems.attention import Impl
from benchmarker_problems.attention.jax import Attention, Kernel, attend, attend_to_rows, fused_kernel
from benchmarker_problems.generation import PAGE, page_table, step_and_tokens
from benchmarker_problems.steps.jax import Weights

Keys = tuple[Array, Array]
"""Keys and values of a block: [R, S, D], of the layouts tried the one that XLA does not copy on a CPU; or pages
[pages · heads, 16, D]."""
Cache = tuple[Keys, ...]
NO_FUSED_CACHE = ({"impl": "fused", "phase": "decode"}, {"impl": "fused", "phase": "generate"})
"""JAX's fused attention does not fit such a cache."""
Model = Callable[[Weights, Array, Array, Sequence[Attention]], Array]
"""From weights, tokens [B, T], the position of the first and the attention of each block to the last one's logits."""


def attention_into(
    keys: Keys, table_RP: Array | None, position: Array, impl: Impl, kernel: Kernel, written: list[Keys]
) -> Attention:
    """Return the attention of a block that writes keys and values to its cache, and appends that to `written`.

    The tokens are those from `position` on. Several tokens are the prompt, which is first and attends to itself. The
    table says where pages are, if there are any.
    """

    def write(into: Array, new_RTD: Array) -> Array:
        if table_RP is None:
            return jax.lax.dynamic_update_slice_in_dim(into, new_RTD, position, axis=1)
        positions_T = position + jnp.arange(new_RTD.shape[1])
        return into.at[table_RP[:, positions_T // PAGE], positions_T % PAGE].set(new_RTD, unique_indices=True)

    def rows(each: Array) -> Array:
        return each if table_RP is None else each[table_RP].reshape(len(table_RP), -1, each.shape[-1])

    def attention(q_BTHD: Array, k_BTKD: Array, v_BTKD: Array) -> Array:
        with jax.named_scope("cache_write"):
            by_head = [each.swapaxes(1, 2) for each in (k_BTKD, v_BTKD)]
            k, v = (
                write(into, each_BKTD.reshape(-1, *each_BKTD.shape[2:]).astype(into.dtype))
                for into, each_BKTD in zip(keys, by_head, strict=True)
            )
            written.append((k, v))
        if q_BTHD.shape[1] > 1:
            return attend(q_BTHD, k_BTKD, v_BTKD, impl=impl, causal=True, kernel=kernel)
        return attend_to_rows(q_BTHD, k, v, position, impl, rows)

    return attention


def workload(
    framework: JaxFramework, case: Case, params: Any, data: Data, model: Model, shape: tuple[int, int, int, int]
) -> Workload:
    """Return the workload of a phase; `shape` is that of the cache: blocks, and what keys and values have in each."""
    types = PRECISIONS[case.precision]
    dtypes = {"i": DTYPES.get(params.weight_type), "f": DTYPES[types.parameter]}
    weights = {name: framework.put(weight, dtypes[weight.dtype.kind]) for name, weight in data.weights.items()}
    blocks, *of_block = shape
    dtype, device = DTYPES[types.compute], framework.device
    cache: Cache = tuple(
        (jnp.zeros(of_block, dtype, device=device), jnp.zeros(of_block, dtype, device=device)) for _ in range(blocks)
    )
    forced, kernel = params.decoding == "forced", fused_kernel(case)
    pages_RP = page_table(params)
    table_RP = None if pages_RP is None else framework.put(pages_RP)

    def advance(
        weights: Weights, cache: Cache, sequence_BS: Array, tokens_BT: Array, position: Array
    ) -> tuple[Cache, tuple[Array, Array, Array]]:
        written: list[Keys] = []
        attentions = [attention_into(keys, table_RP, position, params.impl, kernel, written) for keys in cache]
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
    step, tokens = step_and_tokens(params, data, framework.put, np.asarray, zero, run)
    return Workload(step, outputs, tokens=tokens)
