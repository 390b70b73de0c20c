"""The words that the core, the plugins and the problems share.

Values are frozen and go one way: a `Case` says what to run, a `Framework` and a `Problem` make a `Workload` of
it, and what the workload did becomes a `Record`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct

from benchmarker.errors import UserError

if TYPE_CHECKING:
    import numpy as np

Mode = Literal["inference", "forward_backward", "training"]
Profiling = Literal["no", "yes", "separable"]
MODES: tuple[Mode, ...] = ("inference", "forward_backward", "training")


class Measuring(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a case is measured: preheat, timed blocks, and when to stop."""

    preheat: bool = False
    preheat_max_s: Annotated[float, Meta(gt=0, description="longest preheat, s")] = 60.0
    warmup_steps: Annotated[int, Meta(ge=1, description="steps before timing where there is no preheat")] = 3
    blocks: Annotated[int, Meta(ge=1, description="most timed blocks")] = 100
    seconds: Annotated[float, Meta(gt=0, description="longest timed part, s")] = 30.0
    median_precision: Annotated[
        float | None,
        Meta(description="stop early when the 95% interval of the median is within ± this share of it"),
    ] = None
    timeout_s: Annotated[float, Meta(gt=0, description="longest trial, s; then it is ended")] = 3600.0
    profile: Annotated[bool, Meta(description="profile some steps, in a process of its own")] = False
    profile_steps: Annotated[int, Meta(ge=1, description="profiled steps")] = 10
    separable: Annotated[bool, Meta(description="profile with what keeps scopes apart")] = False
    power: Annotated[str, Meta(description="meters to read: passive, auto, none, or names with commas between")] = (
        "passive"
    )
    power_hz: Annotated[float, Meta(gt=0, le=100, description="how often meters are read, 1/s")] = 20.0
    power_min_s: Annotated[float, Meta(ge=0, description="least timed part where power was asked for, s")] = 60.0
    power_idle_s: Annotated[float, Meta(ge=0, description="rest before a trial where power was asked for, s")] = 2.0

    @property
    def profiling(self) -> Profiling:
        """Whether the case is profiled, and how."""
        return "separable" if self.separable else "yes" if self.profile else "no"

    @property
    def wants_power(self) -> bool:
        """Whether an energy figure was asked for, for which the timing lasts longer where there is a sensor."""
        return self.power not in ("passive", "none")


class Case(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One thing to measure, with nothing left to be decided.

    `params` are the problem's own parameters, every one of them; `device` is a platform that the framework
    reports, `gpu` the visible index asked for, `threads` the CPU threads asked for (None: the framework's default).
    """

    problem: str
    framework: str
    device: str
    gpu: int | None = None
    precision: str = "fp32"
    mode: Mode = "inference"
    compile: bool = False
    params: dict[str, bool | int | float | str]
    seed: Annotated[int, Meta(ge=0)] = 0
    threads: Annotated[int, Meta(ge=1)] | None = None
    measuring: Measuring = Measuring()


@dataclass(frozen=True, slots=True)
class Device:
    """A device that a framework reports, and the precisions that it does there.

    Power sensors are matched to it by its `uuid` or its PCI address (`0000:65:00.0`).
    """

    platform: str
    name: str
    precisions: tuple[str, ...]
    memory_bytes: int | None = None
    uuid: str | None = None
    pci: str | None = None


@dataclass(frozen=True, slots=True)
class FrameworkInfo:
    """What a framework says of itself on this machine.

    `devices` stand in order of preference: the first is what `--device=auto` takes. `compile` says whether its
    steps are compiled: always, never, or as `--compile` asks. `libraries` maps distribution to version.
    `variables` names the environment variables that change its speed; a record keeps those that are set.
    """

    name: str
    version: str
    devices: tuple[Device, ...]
    compile: Literal["always", "optional", "never"]
    libraries: Mapping[str, str]
    variables: tuple[str, ...] = ()


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
class Metric:
    """A figure derived from a record: a value in a unit without prefix (`s`, `B`, `1/s`, ...), or None and the reason.

    `headline` puts it into tables of several records.
    """

    value: float | None
    unit: str
    better: Literal["higher", "lower"]
    reason: str | None = None
    headline: bool = False


StepMarker = Callable[[int], AbstractContextManager[object]]
"""Marks what runs within it as the step of a number, for the profiler."""


class Framework(ABC):
    """A framework, opened on one device in one precision."""

    @abstractmethod
    def synchronize(self, result: Any) -> None:
        """Wait until `result`, and every step launched before it, is done."""

    @abstractmethod
    def is_finite(self, result: Any) -> bool:
        """Whether no floating-point number in `result` is NaN or infinite."""

    @abstractmethod
    def threads(self) -> int | None:
        """CPU threads that the framework really computes with, as found by looking; None where that cannot be."""

    @abstractmethod
    def settings(self) -> Mapping[str, str]:
        """What decides the precision of matrix products, as read back from the framework."""

    @abstractmethod
    def peak_memory_bytes(self) -> int | None:
        """Most bytes allocated on the device so far, or None where the framework does not count."""

    def profile(self, folder: Path) -> AbstractContextManager[StepMarker]:
        """Trace what runs within it to a file in `folder`; what it gives marks the step of a number.

        The file is `*.xplane.pb`, or in Chrome's format `*.json`. Raises `UserError` where there is no profiler.
        """
        raise UserError("it has no profiler")

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Whether `error` says that memory ran out."""
        return isinstance(error, MemoryError)


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
