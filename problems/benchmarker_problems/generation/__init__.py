"""Text generation: the phases of a decoder with a cache of keys and values, their options, and their steps.

`prefill` computes the prompt and chooses the first new token; a step is a prompt for the whole batch. A step of
`decode` chooses one token for each sequence of the batch, with a cache that holds `depth` positions and more with every
step. After `new_tokens` steps it begins at `depth` again. A step of `generate` is both: a prompt, and `new_tokens`
tokens. Steps do not wait for a token; requests do the same work, and fetch every token to the host. The token with the
largest logit is chosen (greedy), and no token ends a sequence.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain, cycle, repeat
from math import prod
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta

from benchmarker import Data, Generates, Token
from benchmarker_problems.layers import DERIVED
from benchmarker_problems.layers.data import next_tokens, sequences
from benchmarker_problems.quantization import WeightType

Phase = Literal["none", "prefill", "decode", "generate"]
Decoding = Literal["greedy", "forced"]
Cache = Literal["fit", "max", "paged"]

DEFAULTS: Mapping[Phase, Mapping[str, int]] = {
    "none": {},
    "prefill": {"prompt_len": 128},
    "decode": {"depth": 128, "new_tokens": 32},
    "generate": {"prompt_len": 128, "new_tokens": 32},
}
"""The lengths of each phase; it has no others."""


PAGE = 16
"""Positions of a page, as in vLLM by default."""


@dataclass(frozen=True)
class Generation(Generates):
    """A problem with the options of text generation."""

    phase: Annotated[
        Phase,
        Meta(
            description="text generation with a KV cache: process the prompt (prefill), generate one token per "
            "sequence (decode), or both (generate); none: whole sequences without a cache"
        ),
    ] = "none"
    prompt_len: Annotated[int, Meta(ge=0, description="tokens of a prompt, for prefill and generate")] = DERIVED
    depth: Annotated[int, Meta(ge=0, description="positions in the cache before the first token, for decode")] = DERIVED
    new_tokens: Annotated[int, Meta(ge=0, description="tokens generated per sequence, for decode and generate")] = (
        DERIVED
    )
    decoding: Annotated[
        Decoding,
        Meta(
            description="next token in a phase: the one with the largest logit (greedy), or the one in the data "
            "(forced), as in a check"
        ),
    ] = "greedy"
    weight_type: Annotated[
        WeightType,
        Meta(
            description="weight type of linear layers in a phase: that of --precision (full), or weight-only "
            "quantization: int8 with a scale per output, int4 with a scale per output and 32 inputs"
        ),
    ] = "full"
    kv_cache: Annotated[
        Cache,
        Meta(
            description="KV cache in a phase: seq_len positions (fit), the published context length of the size (max), "
            "or seq_len positions in scattered pages of 16 (paged)"
        ),
    ] = "fit"


def fill_lengths(problem: Any, context: int | None) -> None:
    """Give the lengths of a phase their defaults; raises `ValueError` for those that do not fit.

    `context` is the context length that is published for the size, if there is one.
    """
    lengths = DEFAULTS[problem.phase]
    for name in ("prompt_len", "depth", "new_tokens"):
        value = getattr(problem, name)
        if value is DERIVED:
            object.__setattr__(problem, name, lengths.get(name, 0))
        elif value and name not in lengths:
            phases = " or ".join(phase for phase, names in DEFAULTS.items() if name in names)
            raise ValueError(f"{name}={value} needs phase={phases}")
        elif not value and name in lengths:
            raise ValueError(f"{name}=0 is too small for phase={problem.phase}: at least 1")
    if problem.kv_cache == "max":
        if context is None:
            raise ValueError(f"kv_cache=max needs a context length, and none is published for size={problem.size}")
        if problem.seq_len not in (DERIVED, context):
            raise ValueError(
                f"seq_len={problem.seq_len} needs kv_cache=fit or paged; max has room for {context} positions"
            )
        object.__setattr__(problem, "seq_len", context)
    if problem.seq_len is DERIVED:
        object.__setattr__(problem, "seq_len", positions(problem) or 128)
    if problem.seq_len < positions(problem):
        raise ValueError(f"seq_len={problem.seq_len} has no room for the {positions(problem)} positions of the phase")
    if problem.phase == "none" and problem.decoding != "greedy":
        raise ValueError(f"decoding={problem.decoding} needs a phase")
    if problem.phase == "none" and problem.kv_cache != "fit":
        raise ValueError(f"kv_cache={problem.kv_cache} needs a phase")


def positions(problem: Any) -> int:
    """Return the positions that a phase fills; the last token that is chosen has none."""
    last: bool = problem.phase == "generate"
    return int(problem.prompt_len + problem.depth + problem.new_tokens) - last


def pages(problem: Any) -> int:
    """Return the pages of a sequence."""
    return -(-int(problem.seq_len) // PAGE)


def page_table(problem: Any) -> np.ndarray | None:
    """Return where the pages of each sequence and head are, [R, P], in random order; None for a cache without pages."""
    if problem.kv_cache != "paged":
        return None
    shape = problem.batch_size, pages(problem)
    heads = problem.cache_shape[1] // prod(shape)
    page_BP = np.random.default_rng(0).permutation(prod(shape)).reshape(shape)
    page_BKP: np.ndarray = page_BP[:, None] * heads + np.arange(heads)[:, None]
    return page_BKP.reshape(-1, shape[1]).astype(np.int32)


def phase_title(problem: Any) -> str:
    """Return the phase, its lengths, and what else is not as usual."""
    p = problem
    lengths = {"prefill": f"P={p.prompt_len}", "decode": f"at {p.depth}+{p.new_tokens}"}
    room = f" S={p.seq_len}" if p.seq_len > positions(p) else ""
    forced = " forced" if p.decoding == "forced" else ""
    paged = " paged" if p.kv_cache == "paged" else ""
    weights = "" if p.weight_type == "full" else f" {p.weight_type} weights"
    what = lengths.get(p.phase, f"P={p.prompt_len} N={p.new_tokens}")
    return f"{p.phase}, B={p.batch_size} {what}{room}{paged}{forced}{weights}"


Tell = Callable[[Token], object]
"""What a request calls for each token that is on the host."""
Run = Callable[[Any, Any, Any], tuple[Any, Any, Any]]
"""A pass: from a sequence [B, S], the tokens [B, T] of the pass, and the position of the first of them, to the token
that follows [B, 1], its position, and the result."""


def token_batches(problem: Any, rng: np.random.Generator, batches: int) -> tuple[Mapping[str, np.ndarray], ...]:
    """Return batches of `tokens` that can be learned, and of `targets`; in a phase, the tokens of every position."""
    p = problem
    if p.phase == "none":
        return next_tokens(p.batch_size, p.seq_len, p.vocab_size, rng, batches)
    drawn = sequences(p.batch_size, positions(p), p.vocab_size, rng, batches)
    return tuple({"tokens": tokens} for tokens in drawn)


def step_and_tokens(
    problem: Any,
    data: Data,
    put: Callable[[np.ndarray], Any],
    fetch: Callable[[Any], object],
    zero: Any,
    run: Run,
) -> tuple[Callable[[], dict[str, Any]], Callable[[Tell], None]]:
    """Return the step of a phase, and the same work as requests of which each token is fetched to the host.

    The result of a step is each token that it chooses or, with forced decoding, the logits. `zero` is the first
    position.
    """
    p = problem
    name = "logits" if p.decoding == "forced" else "tokens"
    length = p.prompt_len + p.depth
    texts = [(put(batch["tokens"]), np.ascontiguousarray(batch["tokens"][:, :length])) for batch in data.batches]
    on_host = cycle(texts)
    on_device = cycle([(sequence_BS, put(prompt_BP)) for sequence_BS, prompt_BP in texts])

    def passes(sequence_BS: Any, tokens_BT: Any, position: Any, count: int) -> Iterator[tuple[Any, Any, Any]]:
        for _ in range(count):
            tokens_BT, position, result = run(sequence_BS, tokens_BT, position)
            yield tokens_BT, position, result

    def ready(found: Iterator[tuple[Any, Any, Any]], names: Iterable[Token], tell: Tell) -> None:
        for (token_B1, _, _), token in zip(found, names, strict=False):
            fetch(token_B1)
            tell(token)

    if p.phase == "decode":
        sequence_BS, prompt_BP = next(on_device)
        ((token_B1, depth, _),) = passes(sequence_BS, prompt_BP, zero, 1)
        at_depth = partial(passes, sequence_BS, token_B1, depth, p.new_tokens)
        steps = chain.from_iterable(at_depth() for _ in repeat(None))
        return lambda: {name: next(steps)[2]}, lambda tell: ready(at_depth(), repeat("next"), tell)

    new_tokens = p.new_tokens if p.phase == "generate" else 1

    def step() -> dict[str, Any]:
        results = [result for _, _, result in passes(*next(on_device), zero, new_tokens)]
        return {name: results if p.phase == "generate" else results[0]}

    def tokens(tell: Tell) -> None:
        sequence_BS, prompt_BP = next(on_host)
        ready(passes(sequence_BS, put(prompt_BP), zero, new_tokens), chain(["first"], repeat("next")), tell)

    return step, tokens


def small_lengths(problem: Any) -> dict[str, Any]:
    """Return the lengths of a check, with room that stays empty; the tokens are those of the data.

    Otherwise a near tie between two logits, which rounding may decide otherwise, would change all that follows.
    """
    if problem.phase == "none":
        return {"seq_len": 32}
    lengths = {"prompt_len": 20, "depth": 20, "new_tokens": 5}
    used = {name: lengths[name] for name in DEFAULTS[problem.phase]}
    cache = "fit" if problem.kv_cache == "max" else problem.kv_cache
    return {**used, "seq_len": 32, "decoding": "forced", "kv_cache": cache}
