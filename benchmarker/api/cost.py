"""The work of a step and of its parts: by formula, or counted where it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Cost:
    """Work of one step by formula.

    `flops` follows the problem's `cost_formula`: those of the matrix products that the mode needs, or those that are
    customarily counted for another computation. It counts a multiply-add as 2 and excludes recomputation. `bytes` is
    the minimum traffic: each weight and input read once and each result written once. In text generation,
    `input_tokens` are those of the prompts that a step computes, and `output_tokens` those that it generates.
    """

    flops: int
    bytes: int
    samples: int
    tokens: int | None = None
    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Work:
    """Work of one part of a step by formula: FLOPs as in `Cost`, and the bytes that this part alone must move.

    Of these bytes, `weight_bytes` are weights and their gradients, and `cache_bytes` are state that is kept from step
    to step, such as keys and values; the rest are activations. Both are 0 where the formula does not tell them apart.
    """

    flops: int
    bytes: int
    weight_bytes: int = 0
    cache_bytes: int = 0

    def __add__(self, other: Work) -> Work:
        """Return the work of both."""
        return Work(
            self.flops + other.flops,
            self.bytes + other.bytes,
            self.weight_bytes + other.weight_bytes,
            self.cache_bytes + other.cache_bytes,
        )

    def __mul__(self, count: int) -> Work:
        """Return the work of a part that runs `count` times."""
        return Work(count * self.flops, count * self.bytes, count * self.weight_bytes, count * self.cache_bytes)


CountedBy = Literal["formula", "tensorflow", "torch", "xla", "program"]
"""What tells the FLOPs of a step.

That is a formula, PyTorch's counter of matrix products, TensorFlow's of ops, XLA's of all arithmetic, or the program
that is measured.
"""


@dataclass(frozen=True, slots=True)
class Counted:
    """Work of one step that is known only where it runs; as in `Cost`, None where nothing tells it.

    `source` says what tells the FLOPs, None if nothing does.
    """

    flops: int | None
    bytes: int | None
    samples: int
    source: CountedBy | None
    tokens: int | None = None
    input_tokens: int = 0
    output_tokens: int = 0
