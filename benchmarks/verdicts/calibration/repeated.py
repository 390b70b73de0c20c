"""A problem whose step does the same real work a number of times, so that 102 in place of 100 is 2% slower in truth."""

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
    """Which problem, at a fixed small size, and how many times in one step."""

    work: Annotated[Literal["gemm", "attention"], Meta(description="problem that is repeated")] = "gemm"
    repeats: Annotated[int, Meta(ge=1, description="times in a step")] = 100


def inner(params: RepeatedParams) -> tuple[Problem, Any]:
    """The problem that is repeated, and its parameters."""
    problem: Problem = registry.load([f"problem.{params.work}"]).hook.make_problem()
    return problem, convert(problem.params, SIZES[params.work])


class Repeated(Problem):
    """The problem that is repeated, but for its cost."""

    summary = "the same small work several times in a step"
    params = RepeatedParams
    cost_formula = "that of the problem, times the repeats"

    def scopes(self, params: RepeatedParams, mode: Mode) -> Mapping[str, int]:
        """Those of the problem, as often as it is repeated."""
        problem, size = inner(params)
        return {name: count * params.repeats for name, count in problem.scopes(size, mode).items()}

    def cost(self, params: RepeatedParams, mode: Mode, precision: str) -> Cost:
        """Work and samples grow with the repeats; a sample is a repeat."""
        problem, size = inner(params)
        once, n = problem.cost(size, mode, precision), params.repeats
        return Cost(n * once.flops, n * once.bytes, n * once.samples)

    def data(self, params: RepeatedParams, precision: str, rng: np.random.Generator, batches: int) -> Data:
        """That of the problem."""
        problem, size = inner(params)
        return problem.data(size, precision, rng, batches)

    def small(self, params: RepeatedParams) -> RepeatedParams:
        """Once."""
        return RepeatedParams(params.work, 1)

    def reference(self, params: RepeatedParams, data: Data, mode: Mode) -> Iterator[Mapping[str, np.ndarray]]:
        """That of the problem."""
        problem, size = inner(params)
        return problem.reference(size, data, mode)


@hookimpl
def make_problem() -> Problem:
    """The problem."""
    return Repeated()
