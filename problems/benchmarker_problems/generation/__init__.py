"""Text generation: the phases of a decoder with a cache of keys and values, their options, and their steps.

`prefill` computes the prompt and chooses the first new token; a step is a prompt for the whole batch, and its time is
the time to first token (TTFT) without a server. A step of `decode` chooses one token for each sequence of the batch,
with a cache that holds `depth` positions and more with every step; its time is the time per output token (TPOT) there.
After `new_tokens` steps it begins at `depth` again. A step of `generate` is both: a prompt, and `new_tokens` tokens.
The token with the largest logit is chosen (greedy), and no token ends a sequence.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import cycle
from math import prod
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta

from benchmarker import PRECISIONS, Mode, UserError
from benchmarker_problems.layers import DERIVED
from benchmarker_problems.layers.data import next_tokens, sequences

Phase = Literal["none", "prefill", "decode", "generate"]
Decoding = Literal["greedy", "forced"]

PhaseOption = Annotated[
    Phase,
    Meta(
        description="of text generation with a cache: compute the prompt (prefill), choose one token for each sequence "
        "(decode), or both (generate); none computes whole sequences"
    ),
]
PromptLen = Annotated[int, Meta(ge=0, description="tokens of a prompt, for prefill and generate")]
Depth = Annotated[int, Meta(ge=0, description="positions in the cache before the first token, for decode")]
NewTokens = Annotated[int, Meta(ge=0, description="tokens of a sequence that generate chooses, or decode in turn")]
DecodingOption = Annotated[
    Decoding,
    Meta(
        description="next token in a phase: that with the largest logit (greedy), or that of the data (forced), as in "
        "a check"
    ),
]
SEQ_LEN_HELP = "sequence length; in a phase, the positions that the cache has room for"

DEFAULTS: Mapping[Phase, Mapping[str, int]] = {
    "none": {},
    "prefill": {"prompt_len": 128},
    "decode": {"depth": 128, "new_tokens": 32},
    "generate": {"prompt_len": 128, "new_tokens": 32},
}
"""The lengths of each phase; it has no others."""


def fill_lengths(params: Any) -> None:
    """Give the lengths of a phase their defaults; raises `ValueError` for those that do not fit."""
    lengths = DEFAULTS[params.phase]
    for name in ("prompt_len", "depth", "new_tokens"):
        value = getattr(params, name)
        if value is DERIVED:
            object.__setattr__(params, name, lengths.get(name, 0))
        elif value and name not in lengths:
            phases = " or ".join(phase for phase, names in DEFAULTS.items() if name in names)
            raise ValueError(f"{name}={value} needs phase={phases}")
        elif not value and name in lengths:
            raise ValueError(f"{name}=0 is too small for phase={params.phase}: at least 1")
    if params.seq_len is DERIVED:
        object.__setattr__(params, "seq_len", positions(params) or 128)
    if params.seq_len < positions(params):
        raise ValueError(f"seq_len={params.seq_len} has no room for the {positions(params)} positions of the phase")
    if params.phase == "none" and params.decoding != "greedy":
        raise ValueError(f"decoding={params.decoding} needs a phase")


def accelerator_defaults(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the defaults on accelerators that suit a phase: a cache that fits, and an attention that all have."""
    phase = given.get("phase", "none")
    unsuited = {"none": (), "prefill": ("seq_len",)}.get(phase, ("seq_len", "impl"))
    return {name: value for name, value in defaults.items() if name not in unsuited}


def positions(params: Any) -> int:
    """Return the positions that a phase fills; the last token that is chosen has none."""
    last: bool = params.phase == "generate"
    return int(params.prompt_len + params.depth + params.new_tokens) - last


def phases(params: Any) -> dict[str, tuple[int, Any]]:
    """Return how often each phase runs in a step, and its parameters alone: `generate` consists of the two others."""
    p = params
    if p.phase != "generate":
        return {"step" if p.phase == "none" else p.phase: (1, p)}
    found = {"prefill": (1, replace(p, phase="prefill", new_tokens=0))}
    if p.new_tokens > 1:
        decode = replace(p, phase="decode", prompt_len=0, depth=p.prompt_len, new_tokens=p.new_tokens - 1)
        found["decode"] = (p.new_tokens - 1, decode)
    return found


def cache_bytes(params: Any, precision: str) -> int:
    """Return the bytes that the keys and values of a phase have room for."""
    return 0 if params.phase == "none" else 2 * prod(params.cache_shape) * PRECISIONS[precision].compute_bytes


def refuse_phase(params: Any, mode: Mode) -> None:
    """Raise `UserError` if a phase is combined with a backward pass."""
    if params.phase != "none" and mode != "inference":
        raise UserError(f"--phase={params.phase} needs --mode=inference")


def phase_title(params: Any) -> str:
    """Return the phase and its lengths."""
    p = params
    lengths = {"prefill": f"P={p.prompt_len}", "decode": f"at {p.depth}+{p.new_tokens}"}
    room = f" S={p.seq_len}" if p.seq_len > positions(p) else ""
    forced = " forced" if p.decoding == "forced" else ""
    return f"{p.phase}, B={p.batch_size} {lengths.get(p.phase, f'P={p.prompt_len} N={p.new_tokens}')}{room}{forced}"


Run = Callable[[Any, Any, Any], tuple[Any, Any, Any]]
"""A pass: from a sequence [B, S], the tokens [B, T] of the pass, and the position of the first of them, to the token
that follows [B, 1], its position, and the result."""


def token_batches(params: Any, rng: np.random.Generator, batches: int) -> tuple[Mapping[str, np.ndarray], ...]:
    """Return batches of `tokens` that can be learned, and of `targets`; in a phase, the tokens of every position."""
    p = params
    if p.phase == "none":
        return next_tokens(p.batch_size, p.seq_len, p.vocab_size, rng, batches)
    drawn = sequences(p.batch_size, positions(p), p.vocab_size, rng, batches)
    return tuple({"tokens": tokens} for tokens in drawn)


def step_of(params: Any, sequences: Sequence[Any], zero: Any, run: Run) -> Callable[[], dict[str, Any]]:
    """Return the step of a phase: its result is each token that it chooses or, with forced decoding, the logits.

    `sequences` are the tokens [B, S] of each batch, `zero` is the first position.
    """
    p = params
    name = "logits" if p.decoding == "forced" else "tokens"
    batches = cycle([(tokens_BS, tokens_BS[:, : p.prompt_len + p.depth]) for tokens_BS in sequences])

    def prefill() -> dict[str, Any]:
        sequence_BS, prompt_BP = next(batches)
        return {name: run(sequence_BS, prompt_BP, zero)[2]}

    def generate() -> dict[str, Any]:
        sequence_BS, prompt_BP = next(batches)
        token_B1, position, result = run(sequence_BS, prompt_BP, zero)
        results = [result]
        for _ in range(p.new_tokens - 1):
            token_B1, position, result = run(sequence_BS, token_B1, position)
            results.append(result)
        return {name: results}

    def decode_at_depth() -> Callable[[], dict[str, Any]]:
        sequence_BS, prompt_BP = next(batches)
        after_prompt = run(sequence_BS, prompt_BP, zero)
        token_B1, position, _ = after_prompt
        done = 0

        def decode() -> dict[str, Any]:
            nonlocal token_B1, position, done
            if done == p.new_tokens:
                (token_B1, position, _), done = after_prompt, 0
            token_B1, position, result = run(sequence_BS, token_B1, position)
            done += 1
            return {name: result}

        return decode

    if p.phase == "decode":
        return decode_at_depth()
    return prefill if p.phase == "prefill" else generate


def small_lengths(params: Any) -> dict[str, Any]:
    """Return the lengths of a check, with room that stays empty; the tokens are those of the data.

    Otherwise a near tie between two logits, which rounding may decide otherwise, would change all that follows.
    """
    if params.phase == "none":
        return {"seq_len": 32}
    lengths = {"prompt_len": 20, "depth": 20, "new_tokens": 5}
    used = {name: lengths[name] for name in DEFAULTS[params.phase]}
    return {**used, "seq_len": 32, "decoding": "forced"}
