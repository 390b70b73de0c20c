"""The words that the core, the plugins and the problems share.

Values are frozen and go one way: a `Case` says what to run, a `Framework` and a `Problem` make a `Workload` of
it, and what the workload did becomes a `Record`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from benchmarker.api.case import Mode

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class Support:
    """What an implementation does: the precisions of each mode, and where limited, the values of a parameter.

    `exclusions` are what it does not do although each part of it is listed: `mode`, `precision`, `device` or a
    parameter by name, as text, all of which must hold.
    """

    precisions: Mapping[Mode, tuple[str, ...]]
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    exclusions: tuple[Mapping[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Cost:
    """Work of one step by formula.

    `flops` counts what the problem's `cost_formula` says (of the built-in ones: the matrix products that the mode
    needs), a multiply-add as 2, and no recomputation; `bytes`
    counts each weight and input read once and each result written once (the least that must move).
    """

    flops: int
    bytes: int
    samples: int
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """Work of one part of a step by formula: FLOPs as in `Cost`, and the bytes that the part alone must move."""

    flops: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Data:
    """Weights by name, and several distinct input batches, as NumPy arrays on the host."""

    weights: Mapping[str, np.ndarray]
    batches: tuple[Mapping[str, np.ndarray], ...]


@dataclass(frozen=True, slots=True)
class Workload:
    """One case, built: weights and inputs are on the device, and a step can be taken.

    `step` takes one unsynchronised step on the next of the distinct batches, and does nothing else. `outputs`
    brings what a step returned to the host, by the names that `Problem.reference` uses. `recomputed_flops` is
    the forward work of a step that the implementation does again in its backward pass.
    """

    step: Callable[[], Any]
    outputs: Callable[[Any], Mapping[str, np.ndarray]]
    recomputed_flops: int = 0


class Problem(ABC):
    """Something to measure, defined apart from any framework.

    `params` is a frozen dataclass: its fields are the command-line options, with ranges and help in
    `Annotated[type, msgspec.Meta(...)]`; its defaults suit a CPU, and `accelerator` overrides them elsewhere.
    """

    summary: ClassVar[str]
    params: ClassVar[type[Any]]
    accelerator: ClassVar[Mapping[str, Any]] = {}
    cost_formula: ClassVar[str]

    @abstractmethod
    def scopes(self, params: Any, mode: Mode) -> Mapping[str, int]:
        """The parts that every implementation marks, and how often a step enters each."""

    @abstractmethod
    def cost(self, params: Any, mode: Mode, precision: str) -> Cost:
        """Work of one step."""

    def parts(self, params: Any, mode: Mode, precision: str) -> Mapping[str, Work]:
        """Work of a step by scope, its FLOPs together those of `cost`; empty where there is no formula for it.

        A part reads what it takes and its weights, and writes what it gives: nothing stays in a cache from one part
        to the next. So the bytes of the parts together are more than those of `cost`.
        """
        return {}

    @abstractmethod
    def data(self, params: Any, precision: str, rng: np.random.Generator, batches: int) -> Data:
        """Weights and `batches` distinct inputs: float32, float64 for fp64, or the integers that were asked for."""

    @abstractmethod
    def small(self, params: Any) -> Any:
        """The same problem at a size that the reference does in well under a second."""

    @abstractmethod
    def reference(self, params: Any, data: Data, mode: Mode) -> Iterator[Mapping[str, np.ndarray]]:
        """Outputs of successive steps in float64 NumPy."""
