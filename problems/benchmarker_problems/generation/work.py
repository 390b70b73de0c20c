"""Work of a decoder by formula, in whole sequences and in the phases of text generation."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarker import PRECISIONS, Cost, Mode, Work
from benchmarker_problems.attention import Impl
from benchmarker_problems.layers.work import Layers
from benchmarker_problems.steps import ADAMW

PHASE_FORMULA = "a --phase: logits of the last token only, attention to the filled cache, and bytes of that"


@dataclass(frozen=True)
class Pass:
    """Passes through a model that are alike: `count` of them, each with so many tokens of every sequence.

    `keys` is the mean number of positions to which a token attends, its own included; a product with a triangle of the
    scores counts whole, as without a cache. `logits` are the positions of a sequence whose logits are computed.
    """

    count: int
    tokens: int
    keys: float
    logits: int


def passes(problem: Any) -> tuple[Pass, ...]:
    """Return the passes of a step."""
    p = problem
    if p.phase == "none":
        return (Pass(1, p.seq_len, p.seq_len, p.seq_len),)
    if p.phase == "decode":
        return (Pass(1, 1, p.depth + (p.new_tokens + 1) / 2, 1),)
    prefill = Pass(1, p.prompt_len, p.prompt_len, 1)
    if p.phase == "prefill":
        return (prefill,)
    return (prefill, Pass(p.new_tokens - 1, 1, p.prompt_len + p.new_tokens / 2, 1))


def phase_scopes(problem: Any, scopes: Mapping[str, int]) -> dict[str, int]:
    """Return how often the scopes of a pass run in a step, with those that a phase adds."""
    if problem.phase == "none":
        return dict(scopes)
    count = sum(each.count for each in passes(problem))
    within = {**scopes, "cache_write": problem.n_layer, "next_token": 1}
    return {name: count * times for name, times in within.items()}


def cached(each: Pass) -> float:
    """Return the positions of a sequence's cache that a pass reads or writes: each once."""
    return each.keys if each.tokens == 1 else each.tokens


def attention_parts(
    layers: Layers, each: Pass, n_head: int, n_kv_head: int, head_dim: int, impl: Impl
) -> dict[str, Work]:
    """Return the work of attention in a pass, and of writing the cache."""
    queries = layers.rows * n_head
    rows, kv_rows = queries * head_dim, layers.rows * n_kv_head * head_dim
    cache = int(layers.rows // each.tokens * each.keys * n_kv_head * head_dim)
    scores, flops = int(queries * each.keys), int(2 * queries * each.keys * head_dim)
    written = {"cache_write": layers.part(0, read=2 * kv_rows, written=2 * kv_rows, cached=2 * kv_rows)}
    cached = cache if each.tokens == 1 else 0
    if impl == "fused":
        return written | {"attn_fused": layers.part(2 * flops, read=rows + 2 * cache, written=rows, cached=2 * cached)}
    return written | {
        "attn_q_k": layers.part(flops, read=rows + cache, written=scores, cached=cached),
        "attn_softmax": layers.part(0, read=scores, written=scores),
        "attn_att_v": layers.part(flops, read=scores + cache, written=rows, cached=cached),
    }


def cost(
    problem: Any,
    mode: Mode,
    precision: str,
    *,
    weight_bytes: int,
    d_kv: int,
    block_flops: Callable[[int], int],
    unread: Callable[[int], int] = lambda _: 0,
) -> Cost:
    """Return the work of a step.

    A decoder has weights of so many bytes, and keys and values of width `d_kv`. For a number of tokens, `block_flops`
    are those of a block without attention, and `unread` the bytes of weights that are not read. A pass of a phase reads
    the positions of the cache that are filled, and writes those of its tokens. A step of `decode` counts at the mean of
    the positions that it goes through. With backward, there are two products for each product of the forward pass.
    """
    p, types = problem, PRECISIONS[precision]
    flops = moved = tokens = 0
    for each in passes(p):
        rows = p.batch_size * each.tokens
        logits = p.batch_size * each.logits * p.vocab_size
        block = block_flops(rows) + int(4 * rows * each.keys * p.d_model)
        flops += each.count * (p.n_layer * block + 2 * logits * p.d_model)
        read = weight_bytes - unread(rows)
        if p.phase == "none":
            results = logits * types.compute_bytes if mode == "inference" else weight_bytes + 4 * rows
        else:
            cache = int(2 * p.batch_size * cached(each) * p.n_layer * d_kv * types.compute_bytes)
            results = cache + 4 * p.batch_size
        moved += each.count * (read + 4 * rows + results)
        tokens += each.count * rows
    if mode == "training":
        moved = ADAMW.WEIGHTS_MOVED * weight_bytes + 8 * tokens
    output_tokens = p.batch_size * {"decode": 1, "generate": p.new_tokens}.get(p.phase, 0)
    return Cost(
        flops=flops if mode == "inference" else 3 * flops,
        bytes=moved,
        samples=p.batch_size,
        tokens=output_tokens or tokens,
        input_tokens=p.batch_size * p.prompt_len,
        output_tokens=output_tokens,
    )
