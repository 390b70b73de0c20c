"""A case: one fully decided configuration, and how it is measured.

Each field of `CaseRequest` and `Measuring` is an option of the command line and a key of plan files. Its type, range,
default and description are declared here alone; the option, its help and its check, the key, and the command line in
a record follow from them.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from benchmarker.api.fields import NULL_IS_AN_ANSWER, Count, Positive, Whole
from benchmarker.api.precision import PRECISIONS

Mode = Literal["inference", "forward_backward", "training"]
Parallel = Literal["none", "dp", "fsdp", "tp"]
"""How several devices divide the work of a step: by data, by data with the weights divided too, or by tensors.

`none` stands for one device, and for a problem that is made of devices, such as an exchange between them.
"""
Scaling = Literal["strong", "weak"]
"""Whether more devices have the same work in total, or each of them."""
Profiling = Literal["no", "yes", "separable"]
Cache = Literal["hot", "rotate"]
"""Whether steps find their inputs in a cache, or in memory as new data would be."""

MODES: tuple[Mode, ...] = ("inference", "forward_backward", "training")
EXECUTIONS = ("eager", "compiled")
"""How steps run, not compiled and compiled, in a framework that has no words of its own."""
LONGEST_S = 1e9
"""Longest time that can be requested, s: 31 years."""
Time = Annotated[float, Meta(gt=0, le=LONGEST_S)]
TimeOrNone = Annotated[float, Meta(ge=0, le=LONGEST_S)]


def option_name(field: str) -> str:
    """Return the name of a field as an option has it: a time without its unit, and `gpus` for `gpu`."""
    return "gpus" if field == "gpu" else field.removesuffix("_s")


class Measuring(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a case is measured: preheat, timed blocks, and when to stop."""

    preheat: Annotated[bool, Meta(description="before timing, run until the step rate is stable")] = False
    preheat_max_s: Annotated[Time, Meta(description="maximum duration of the preheat")] = 60.0
    warmup_steps: Annotated[Count, Meta(description="warm-up steps before timing, if there is no --preheat")] = 3
    blocks: Annotated[
        Positive, Meta(description="maximum number of timed blocks, unless --power-min requires more")
    ] = 100
    seconds: Annotated[
        Time, Meta(description="maximum duration of the timed part, unless --power-min requires more")
    ] = 30.0
    #: null for what the problem declares; which it was, and with how many sets, is in `inputs`
    cache: Annotated[
        Cache | None,
        NULL_IS_AN_ANSWER,
        Meta(
            description="inputs of successive steps. rotate: as many sets as it takes for none to stay in the "
            "last-level cache; hot: one set, always in place",
            extra={"default": "rotate for kernels, four sets for models"},
        ),
    ] = None
    median_precision: Annotated[
        Annotated[float, Meta(gt=0, le=1)] | None,
        NULL_IS_AN_ANSWER,
        Meta(
            description="stop early when the 95% interval of the median is within ± this share; 0.01 is 1%",
            extra={"values": "SHARE"},
        ),
    ] = None
    timeout_s: Annotated[
        Time, Meta(description="time limit of a trial; a trial that exceeds it is terminated and counts as failed")
    ] = 3600.0
    profile: Annotated[bool, Meta(description="profile some steps after the timed ones, in a separate process")] = False
    profile_steps: Annotated[Positive, Meta(description="number of profiled steps, with --profile")] = 10
    separable: Annotated[
        bool,
        Meta(
            description="profile without fusion across scopes where possible; the profiled program differs from the "
            "timed one"
        ),
    ] = False
    power: Annotated[
        str,
        Meta(
            description="meters to read. auto: all found here; passive: the same without extending the trial; none: no "
            "meter",
            extra={"values": "METER[,METER...]"},
        ),
    ] = "passive"
    power_hz: Annotated[
        float, Meta(gt=0, le=100, description="sampling rate of the meters, 1/s", extra={"values": "HZ"})
    ] = 20.0
    power_min_s: Annotated[
        TimeOrNone,
        Meta(description="minimum duration of the timed part if --power is auto or names meters, and one is found"),
    ] = 60.0
    power_idle_s: Annotated[
        TimeOrNone,
        Meta(description="idle time before each trial, to measure idle power; under the same condition"),
    ] = 2.0

    counters: Annotated[
        str,
        Meta(
            description="events to count in the timed blocks, on Linux: cycles, page_faults and others that `list "
            "counters` lists",
            extra={"values": "NAME[,NAME...]"},
        ),
    ] = "none"

    @property
    def profiling(self) -> Profiling:
        """Whether and how the case is profiled."""
        return "separable" if self.separable else "yes" if self.profile else "no"

    @property
    def wants_power(self) -> bool:
        """Whether an energy figure was requested; if there is a sensor, the timed part is then longer."""
        return self.power not in ("passive", "none")


class CaseRequest(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A case as a user requests it of any framework: what is not given is decided when the framework is known.

    `params` are the problem's own parameters that were given. `device` may also be `auto`, the framework's choice, or
    `gpu`.
    """

    #: name of the problem
    problem: Annotated[
        str, Meta(description="the problem; add --help to list its own options", extra={"values": "NAME"})
    ]
    mode: Annotated[Mode, Meta(description="work done in each step")] = "inference"
    precision: Annotated[
        str,
        Meta(description="precision; a name means the same in every framework", extra={"choices": tuple(PRECISIONS)}),
    ] = "fp32"
    device: Annotated[
        str,
        Meta(
            description="a platform that the framework reports (cpu, cuda, rocm, tpu, xpu, mps), gpu, or auto: the "
            "framework's choice",
            extra={"values": "PLATFORM"},
        ),
    ] = "auto"
    gpu: Annotated[
        Count | None,
        NULL_IS_AN_ANSWER,
        Meta(description="index of the GPU among the visible ones", extra={"values": "INDEX"}),
    ] = None
    devices: Annotated[
        Positive,
        Meta(
            description="number of devices that compute together; a CPU's cores are split into N virtual devices",
            extra={"values": "N"},
        ),
    ] = 1
    nodes: Annotated[
        Positive | None,
        NULL_IS_AN_ANSWER,
        Meta(
            description="number of nodes over which to spread the devices evenly",
            extra={"values": "N", "default": "as few as possible"},
        ),
    ] = None
    parallel: Annotated[
        Parallel | None,
        NULL_IS_AN_ANSWER,
        Meta(
            description="how several devices share a training step: data parallel (dp), fully sharded data parallel "
            "(fsdp) or tensor parallel (tp)",
            extra={"default": "dp"},
        ),
    ] = None
    #: `--independent`: each of these devices ran an independent copy; `cost` is that of all of them
    independent: Annotated[
        bool, Meta(description="run an independent copy on each device: all concurrently, then one alone")
    ] = False
    threads: Annotated[
        Positive | None,
        NULL_IS_AN_ANSWER,
        Meta(
            description="CPU threads to compute with",
            extra={"values": "N", "default": "the framework's own"},
        ),
    ] = None
    #: whether the step is compiled; always true for a framework that compiles every step
    compile: Annotated[bool, Meta(description="compile the step, in a framework where this is optional")] = False
    params: dict[str, bool | Whole | float | str] = {}  #: parameters of the problem that were given
    seed: Annotated[Count, Meta(description="seed for weights and inputs", extra={"values": "N"})] = 0
    measuring: Measuring = Measuring()  #: how the case is measured


class Case(CaseRequest, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One fully decided configuration to measure."""

    framework: str  #: name of the framework
    device: str  #: platform that the framework ran on (`cpu`, `cuda`, ...)
    #: the framework's words for how its steps can run, such as `eager` and `compiled`, or `jitted`: of two,
    #: `case.compile` chooses the second
    executions: list[str] = []
    #: every parameter of the problem, including those not given on the command line
    params: dict[str, bool | Whole | float | str]
    source: str = ""  #: SHA-256 digest of the user's file that the problem is; empty for a plugin
    nodes: Positive = 1  #: number of nodes of the allocation on which they run, as many on each
    #: how the devices divide the work, given by `--parallel`, see docs/devices.md; `none` for one device and for
    #: `collective`
    parallel: Parallel = "none"
    #: number of processes that do so: one for each device, or one for all, as the framework does it
    ranks: Positive = 1

    @property
    def is_emulated(self) -> bool:
        """Whether its number format is emulated: then an error is measured, but no time."""
        types = PRECISIONS.get(self.precision)
        return types is not None and types.is_emulated

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
