"""A problem whose step repeats the same real work: 102 repeats instead of 100 are truly 2% slower."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Self

import numpy as np
from msgspec import Meta

from benchmarker import Cost, Data, Mode, Problem, hookimpl
from benchmarker.hooks import registry
from benchmarker.hooks.parameters import convert

SIZES: dict[str, dict[str, Any]] = {
    "gemm": {"m": 128, "n": 128, "k": 128},
    "attention": {"batch_size": 1, "heads": 2, "seq_len": 48, "impl": "matmul"},
}


@dataclass(frozen=True)
class Repeated(Problem):
    """A problem at a fixed small size, repeated several times in a step; only its cost differs."""

    summary = "the same small work several times per step"
    cost_formula = "the cost of the repeated problem times the repeats"

    work: Annotated[Literal["gemm", "attention"], Meta(description="problem that is repeated")] = "gemm"
    repeats: Annotated[int, Meta(ge=1, description="repeats per step")] = 100

    @property
    def once(self) -> Problem:
        """The repeated problem."""
        kind = registry.problem(self.work)
        return convert(kind, SIZES[self.work])

    def scopes(self, mode: Mode) -> Mapping[str, int]:
        """Return the scopes of the repeated problem, with their counts times the repeats."""
        return {name: count * self.repeats for name, count in self.once.scopes(mode).items()}

    def cost(self, mode: Mode, precision: str) -> Cost:
        """Return work and samples in proportion to the repeats; each repeat adds its samples."""
        once, n = self.once.cost(mode, precision), self.repeats
        return Cost(n * once.flops, n * once.bytes, n * once.samples)

    def data(self, precision: str, rng: np.random.Generator, batches: int) -> Data:
        """Return the data of the repeated problem."""
        return self.once.data(precision, rng, batches)

    def small(self) -> Self:
        """Return the problem with a single repeat."""
        return replace(self, repeats=1)

    def reference(self, data: Data, mode: Mode) -> Iterator[Mapping[str, np.ndarray]]:
        """Return the reference of the repeated problem."""
        return self.once.reference(data, mode)


@hookimpl
def define_problem() -> type[Problem]:
    """Return the problem."""
    return Repeated
