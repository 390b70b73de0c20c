"""What is to be measured, and how: a case with nothing left to be decided."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Struct

from benchmarker.api.nulls import NULL_IS_AN_ANSWER

if TYPE_CHECKING:
    pass


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
        NULL_IS_AN_ANSWER,
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
    gpu: Annotated[int | None, NULL_IS_AN_ANSWER] = None
    precision: str = "fp32"
    mode: Mode = "inference"
    compile: bool = False
    params: dict[str, bool | int | float | str]
    seed: Annotated[int, Meta(ge=0)] = 0
    threads: Annotated[Annotated[int, Meta(ge=1)] | None, NULL_IS_AN_ANSWER] = None
    measuring: Measuring = Measuring()
