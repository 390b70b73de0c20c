"""A problem whose step repeats the same real work: 102 repeats instead of 100 are truly 2% slower."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

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
class RepeatedParams:
    """The repeated problem, at a fixed small size, and the number of repeats per step."""

    work: Annotated[Literal["gemm", "attention"], Meta(description="problem that is repeated")] = "gemm"
    repeats: Annotated[int, Meta(ge=1, description="repeats per step")] = 100


def inner(params: RepeatedParams) -> tuple[Problem, Any]:
    """Return the repeated problem and its parameters."""
    problem: Problem = registry.load([f"problem.{params.work}"]).hook.make_problem()
    return problem, convert(problem.params, SIZES[params.work])


class Repeated(Problem):
    """The repeated problem; only its cost differs."""

    summary = "the same small work several times per step"
    params = RepeatedParams
    cost_formula = "the cost of the repeated problem times the repeats"

    def scopes(self, params: RepeatedParams, mode: Mode) -> Mapping[str, int]:
        """Return the scopes of the repeated problem, with their counts times the repeats."""
        problem, size = inner(params)
        return {name: count * params.repeats for name, count in problem.scopes(size, mode).items()}

    def cost(self, params: RepeatedParams, mode: Mode, precision: str) -> Cost:
        """Return work and samples in proportion to the repeats; each repeat adds its samples."""
        problem, size = inner(params)
        once, n = problem.cost(size, mode, precision), params.repeats
        return Cost(n * once.flops, n * once.bytes, n * once.samples)

    def data(self, params: RepeatedParams, precision: str, rng: np.random.Generator, batches: int) -> Data:
        """Return the data of the repeated problem."""
        problem, size = inner(params)
        return problem.data(size, precision, rng, batches)

    def small(self, params: RepeatedParams) -> RepeatedParams:
        """Return the parameters with a single repeat."""
        return RepeatedParams(params.work, 1)

    def reference(self, params: RepeatedParams, data: Data, mode: Mode) -> Iterator[Mapping[str, np.ndarray]]:
        """Return the reference of the repeated problem."""
        problem, size = inner(params)
        return problem.reference(size, data, mode)


@hookimpl
def make_problem() -> Problem:
    """Return the problem."""
    return Repeated()
