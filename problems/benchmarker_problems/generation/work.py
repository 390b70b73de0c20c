"""Passes of a decoder, through whole sequences and in the phases of text generation."""

from dataclasses import dataclass
from typing import Any

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

    @property
    def cached(self) -> float:
        """Positions of a sequence's cache that are read or written: each once."""
        return self.keys if self.tokens == 1 else self.tokens


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
