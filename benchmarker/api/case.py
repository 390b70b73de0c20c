"""A case: one fully decided configuration, and how it is measured."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from benchmarker.api.fields import NULL_IS_AN_ANSWER, Count, Positive, Whole

Mode = Literal["inference", "forward_backward", "training"]


Parallel = Literal["none", "dp", "fsdp", "tp"]
"""How several devices divide the work of a step: by data, by data with the weights divided too, or by tensors.

`none` stands for one device, and for a problem that is made of devices, such as an exchange between them.
"""


Profiling = Literal["no", "yes", "separable"]


MODES: tuple[Mode, ...] = ("inference", "forward_backward", "training")
EXECUTIONS = ("eager", "compiled")
"""How steps run, not compiled and compiled, in a framework that has no words of its own."""


class Measuring(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a case is measured: preheat, timed blocks, and when to stop."""

    preheat: bool = False  #: bring the device to a steady state before timing
    preheat_max_s: Annotated[float, Meta(gt=0, description="maximum preheat time, s")] = 60.0
    warmup_steps: Annotated[Count, Meta(description="steps before timing if there is no preheat")] = 3
    blocks: Annotated[Positive, Meta(description="maximum number of timed blocks")] = 100
    seconds: Annotated[float, Meta(gt=0, description="maximum length of the timed part, s")] = 30.0
    median_precision: Annotated[
        float | None,
        NULL_IS_AN_ANSWER,
        Meta(description="stop early when the 95% interval of the median is within ± this share of the median"),
    ] = None
    timeout_s: Annotated[float, Meta(gt=0, description="time limit of a trial, s")] = 3600.0
    profile: Annotated[bool, Meta(description="profile some steps, in a separate process")] = False
    profile_steps: Annotated[Positive, Meta(description="number of profiled steps")] = 10
    separable: Annotated[bool, Meta(description="profile with settings that keep scopes separate")] = False
    power: Annotated[str, Meta(description="meters to read: passive, auto, none, or comma-separated names")] = "passive"
    power_hz: Annotated[float, Meta(gt=0, le=100, description="sampling rate of the meters, 1/s")] = 20.0
    power_min_s: Annotated[float, Meta(ge=0, description="minimum timed part if power was requested, s")] = 60.0
    power_idle_s: Annotated[float, Meta(ge=0, description="idle period before a trial if power was requested, s")] = 2.0

    @property
    def profiling(self) -> Profiling:
        """Whether and how the case is profiled."""
        return "separable" if self.separable else "yes" if self.profile else "no"

    @property
    def wants_power(self) -> bool:
        """Whether an energy figure was requested; if there is a sensor, the timed part is then longer."""
        return self.power not in ("passive", "none")


class Case(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One fully decided configuration to measure."""

    problem: str  #: name of the problem
    framework: str  #: name of the framework
    device: str  #: platform that the framework ran on (`cpu`, `cuda`, ...)
    gpu: Annotated[int | None, NULL_IS_AN_ANSWER] = None  #: visible index given by `--gpus`; null if none was given
    precision: str = "fp32"  #: name of the precision
    mode: Mode = "inference"  #: what a step does
    compile: bool = False  #: whether the step is compiled; always true for a framework that compiles every step
    #: the framework's words for how its steps can run, such as `eager` and `compiled`, or `jitted`: of two,
    #: `case.compile` chooses the second
    executions: list[str] = []
    #: every parameter of the problem, including those not given on the command line
    params: dict[str, bool | Whole | float | str]
    seed: Count = 0  #: seed of weights and inputs
    #: CPU threads given by `--threads`, of each process; null if not given: the framework's default
    threads: Annotated[Positive | None, NULL_IS_AN_ANSWER] = None
    devices: Positive = 1  #: number of devices that compute together, given by `--devices`
    #: how the devices divide the work, given by `--parallel`, see docs/devices.md; `none` for one device and for
    #: `collective`
    parallel: Parallel = "none"
    #: `--independent`: each of these devices ran an independent copy; `cost` is that of all of them
    independent: bool = False
    nodes: Positive = 1  #: number of nodes of the allocation on which they run, as many on each
    #: number of processes that do so: one for each device, or one for all, as the framework does it
    ranks: Positive = 1
    measuring: Measuring = Measuring()  #: how the case is measured

    @property
    def execution(self) -> str:
        """How a step runs, in the framework's word: eager, compiled, jitted."""
        return (self.executions or EXECUTIONS)[-1 if self.compile else 0]

    @property
    def ranks_per_node(self) -> int:
        """The number of processes on each node."""
        return self.ranks // self.nodes

    def devices_of(self, rank: int) -> range:
        """The numbers of the devices on which a process computes."""
        count = self.devices // self.ranks
        return range(rank * count, (rank + 1) * count)
