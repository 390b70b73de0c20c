"""The record: the raw measurements of one trial, in the units that the field names carry."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import msgspec
from msgspec import Meta, Struct

from benchmarker.api.case import Cache, Case
from benchmarker.api.cost import CountedBy
from benchmarker.api.fields import NULL_IS_AN_ANSWER, Count, Positive, declared_reasons, null_because
from benchmarker.api.launcher import Allocation
from benchmarker.api.metric import Figure
from benchmarker.records.energy import Conditions, Energy, MeterReport
from benchmarker.records.machine import DeviceInfo, Machine, Software, SourceFile
from benchmarker.records.profile import Kernel, Scope, Trace
from benchmarker.records.suite import TrialSuite

SCHEMA_VERSION: Literal[1] = 1

Seconds = Annotated[float, Meta(ge=0)]

EMULATED = "emulated: the error is measured, not the speed"
"""Why a record of a format that is emulated has no times."""
NOT_REACHED = null_because("the trial ended before it was known")
SHARED = null_because("two cases shared the process, so the use of each cannot be separated")


FailureKind = Literal[
    "out_of_memory", "exception", "killed", "timeout", "check", "skipped", "partner", "preempted", "node"
]


class Failure(Struct, frozen=True, forbid_unknown_fields=True):
    """Why a trial failed. It keeps everything that it measured before, including timed blocks."""

    #: `out_of_memory`: memory ran out; `exception`: an error was raised, or the process exited with a status other than
    #: 0; `killed`: a signal ended the process; `timeout`: the trial exceeded `timeout_s`; `check`: an output was wrong
    #: or not finite; `skipped`: the trial was not started, because memory had run out at the same or a smaller size;
    #: `partner`: the other case of the duet failed; `preempted`: the launcher took the allocation away; `node`: a node
    #: of several was lost (the last two are repeated when the run goes on)
    kind: FailureKind
    message: str  #: one line
    stage: str  #: stage of the failure, as in `harness.stages_s`; `start` before the first stage
    #: exit status of the process, or of the program that it measures; a negative value is the signal that ended it
    exit: Annotated[int | None, NULL_IS_AN_ANSWER] = None
    #: in a process group, the rank that failed; null if that is not known, or if the result is wrong
    rank: Annotated[Count | None, NULL_IS_AN_ANSWER] = None
    #: over several nodes, the node of this rank, or the one that was lost; otherwise null
    node: Annotated[str | None, NULL_IS_AN_ANSWER] = None


class Componentwise(Struct, frozen=True, forbid_unknown_fields=True):
    """The largest error of any single element of outputs that are sums of products, as those of a matrix product.

    It is a share of the same sum of absolute values: |Ĉ − C| ÷ (|A|·|B|), the measure in which the error of a sum in
    any order is bounded (Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 3.5).
    """

    #: largest error of any element; the largest float, 1.8e308, if an output holds NaN or infinity
    error: Annotated[float, Meta(ge=0)]
    output: str  #: name of the output with that element
    bound: Annotated[float, Meta(ge=0)]  #: largest error that counts as correct
    place: str = ""  #: the element if it is wrong, what it is and what it should be


class Check(Struct, frozen=True, forbid_unknown_fields=True):
    """The largest relative error (2-norm) of any output, compared with the float64 reference at a small size."""

    #: largest relative error of any output in the 2-norm; the largest float, 1.8e308, if an output holds NaN or
    #: infinity; if only one element of an output of a user's function is wrong, the error of that, as a share of itself
    #: and the rms of the output
    error: Annotated[float, Meta(ge=0)]
    output: str  #: name of that output, or `one element of` it
    bound: Annotated[float, Meta(ge=0)]  #: largest error that counts as correct
    ok: bool  #: whether `error` is within `bound`, and that of `componentwise` within its own
    against: str = "reference"  #: what the outputs were compared with; of a user's file, one of its functions
    place: str = ""  #: the element of a wrong output that is farthest off, what it is and what it should be
    #: largest error of a single element; null if outputs are not sums of products
    componentwise: Annotated[Componentwise | None, NULL_IS_AN_ANSWER] = None

    @property
    def is_within(self) -> bool:
        """Whether both errors are within their bounds."""
        by_element = self.componentwise
        return self.error <= self.bound and (by_element is None or by_element.error <= by_element.bound)


class Preheat(Struct, frozen=True, forbid_unknown_fields=True):
    """The steps before timing. If there are sensors, power and temperature had to be steady too, not only the rate."""

    #: `plateau`: the rate became steady; `timeout`: it did not within the allowed time; `fixed`: a fixed number of
    #: steps was requested
    outcome: Literal["plateau", "timeout", "fixed"]
    duration_s: Seconds  #: duration
    steps: Count  #: number of steps
    window_steps_per_s: list[float]  #: rate of each preheat window; empty for `fixed`
    window_power_W: list[float] = []  #: mean power over each preheat window; empty if no sensor reports it
    #: highest temperature at the end of each preheat window; empty if no sensor reports it
    window_temperature_C: list[float] = []


StoppedBy = Literal["blocks", "seconds", "median_precision", "power_min", "failure"]


class Blocks(Struct, frozen=True, forbid_unknown_fields=True):
    """Timed blocks: the duration of each, from one synchronisation to the next, on the monotonic clock."""

    steps_per_block: Positive  #: steps between two synchronisations
    #: duration of each timed block, in execution order; in a process group, that of its slowest rank
    duration_ns: list[Positive]
    stopped_by: StoppedBy  #: the limit that ended the timing; `power_min`: another limit would have ended it earlier


class TokenTimes(Struct, frozen=True, forbid_unknown_fields=True):
    """When tokens were ready on the host, each waited for: those of one request for text after the other."""

    #: for each request, the time until its first token was on the host; empty if requests have no prompt
    first_ns: list[Positive]
    #: for each request, the times from one token to the next; empty if requests have one token each
    gap_ns: list[list[Positive]]


class CostPart(Struct, frozen=True, forbid_unknown_fields=True):
    """Work of one step by the problem's formula, or as a user's file or its framework tells it."""

    #: floating-point operations as `describe PROBLEM` says, in most problems those of matrix products; a multiply-add
    #: counts as 2
    flops: Annotated[Count | None, null_because("{case.problem} has no `flops`, and {case.framework} counted none")]
    #: forward work that the implementation repeats in its backward pass; not included in `flops`
    recomputed_flops: Count
    #: minimum memory traffic: weights and inputs read once, results written once
    bytes: Annotated[Count | None, null_because("{case.problem} has no `bytes`")]
    samples: Count  #: samples
    #: tokens; null if the problem has none
    tokens: Annotated[Count | None, null_because("{case.problem} has no tokens")]
    input_tokens: Count = 0  #: tokens of the prompts that a step computes; 0 if it computes none
    output_tokens: Count = 0  #: tokens that a step generates; 0 if it generates none
    #: what tells `flops`: a formula, of the problem or of the user's file; PyTorch's counter of matrix products; XLA's
    #: of all arithmetic; or the program itself, which nothing checks
    source: Annotated[CountedBy | None, null_because("nothing counted the FLOPs")] = "formula"


class Memory(Struct, frozen=True, forbid_unknown_fields=True):
    """Peak memory: on the device as counted by the framework, on the host as the resident set of the worker.

    In a process group, it is the sum over its ranks; memory that they share counts for each.
    """

    #: peak of the bytes allocated on the device, as counted by the framework
    device_peak_bytes: Annotated[Count | None, null_because("{case.framework} counts no allocations on {case.device}")]
    #: largest resident set of the process
    host_peak_rss_bytes: Annotated[Count | None, null_because("the operating system does not count it")]


class Rank(Struct, frozen=True, forbid_unknown_fields=True):
    """One rank of a process group."""

    rank: Count  #: number of the process in its group, from 0
    node: Count  #: place of its node in `allocation.nodes` and `machines`; 0 if there is one
    devices: list[Count]  #: numbers of the devices that it computed on
    #: its own duration of each timed block; the longest of all ranks is in `blocks.duration_ns`
    duration_ns: list[Positive]
    memory: Annotated[Memory | None, NOT_REACHED]  #: its own peak memory, with the fields of `memory`


class Local(Struct, frozen=True, forbid_unknown_fields=True):
    """Blocks of several devices with and without communication, by turns, after the timed part.

    Each turn has a block of the step, with its duration in each rank; a block of the work of each device without
    communication, on all devices at once; and the same on one device alone, the others being idle.
    """

    steps_per_block: Positive  #: steps in each of these blocks
    synchronised_ns: list[list[Positive]]  #: for each turn, the duration of a block of the step in each process
    #: for each turn, the duration of a block without communication on each device, all of them at once
    together_ns: list[list[Positive]]
    alone_device: list[Count]  #: for each turn, the device that was alone
    #: for each turn, the duration of its block without communication, while the others were idle
    alone_ns: list[Positive]


class DeviceTime(Struct, frozen=True, forbid_unknown_fields=True):
    """Blocks after the timed part, by the clock of the device, which begins when the host has launched all their steps.

    The device never waits for the host in them. They do not include work that a step leaves on another stream.
    """

    steps_per_block: Positive  #: steps in each of these blocks: no more than could be launched before they began
    duration_ns: list[Positive]  #: duration of each block on the device


SetLimit = Literal["memory", "number", "unknown_cache"]


class Inputs(Struct, frozen=True, forbid_unknown_fields=True):
    """The sets of inputs that the steps take in turns, each at another place in the memory of the device."""

    #: `rotate`: as many as it takes for none to stay in the last-level cache; `hot`: one; null: a few, as the problem
    #: declares neither
    cache: Annotated[Cache | None, NULL_IS_AN_ANSWER]
    sets: Positive  #: number of sets
    set_bytes: Count  #: bytes of one set on a device, of those inputs that a step reads
    #: why `rotate` has fewer sets than ceil(5 · `device.cache_bytes` / `set_bytes`) + 1: they would take over a quarter
    #: of the available memory of the host or the device (`memory`), are more than 4,096 (`number`), or the size of
    #: the cache is not known (`unknown_cache`); null if it has as many
    limited_by: Annotated[SetLimit | None, NULL_IS_AN_ANSWER] = None


def sets_of_rotation(cache_bytes: int, set_bytes: int) -> int:
    """Return how many sets of inputs leave none in a cache when its turn comes: the others fill the cache five times.

    Source: `bench_gpu_time` of FlashInfer.
    """
    return -(-5 * cache_bytes // set_bytes) + 1


class Types(Struct, frozen=True, forbid_unknown_fields=True):
    """The number types of the precision, and the framework's settings as read back from it."""

    parameter: str  #: type of weights and inputs; with `--weight-type`, that of the weights of linear layers
    compute: str  #: type of the factors of matrix products
    accumulate: str  #: type of the sums of matrix products
    lowest: str  #: the coarser of `parameter` and `compute`; comparisons use it as the type of the run
    #: settings that determine the precision of matrix products, as read back from the framework
    settings: dict[str, str]


DesignKind = Literal["rounds", "duet"]


class Design(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The trial's position among the other trials of its run."""

    kind: DesignKind = "rounds"  #: `rounds`: one process per trial; `duet`: two cases take turns in one process
    case_number: Count = 0  #: number of the case in the plan, from 0
    slot: Count = 0  #: position of its process in the round with the number `trial`, from 0
    session: Count = 0  #: the part of a run that was spread over time with `--runs`, from 0; scores count each as a run
    #: numbers of rounds after which the run checked its verdict and could end; empty if it could not end early
    looks: list[Count] = []
    partner: Annotated[str | None, NULL_IS_AN_ANSWER] = None  #: in a duet, the trial of the other case; otherwise null
    #: whether it was measured in a process of the user, as that of a notebook, instead of a fresh one
    in_process: bool = False
    partner_first: list[bool] = []  #: in a duet, for each timed block, whether the partner's block was timed first


class Interference(Struct, frozen=True, forbid_unknown_fields=True):
    """Interference counters: what the operating system counted during the timed part, `duration_s` long.

    Over several nodes, `own_busy_cores` and switches are sums, and the others are those of the node where they are
    worst.
    """

    duration_s: Seconds  #: duration of the timed part, from before the first block to after the last
    #: processor time of the trial's process, or of all ranks of its process group, divided by `duration_s`
    own_busy_cores: Seconds
    #: processor time of all other processes, but for those that read meters for the trial, divided by `duration_s`
    other_busy_cores: Annotated[Seconds | None, null_because("the operating system does not count it")]
    #: share of processor time that the hypervisor gave to other guests
    steal_percent: Annotated[float | None, null_because("the operating system does not count stolen time")]
    #: share of `duration_s` in which at least one thread of the system waited for a core
    pressure_percent: Annotated[float | None, null_because("the operating system shows no pressure stall information")]
    #: time for which the cgroup throttled the process
    throttled_s: Annotated[Seconds | None, null_because("no cgroup counts throttled time")]
    voluntary_switches: Count  #: voluntary context switches of the process: it waited for something
    involuntary_switches: Count  #: involuntary context switches of the process: it was preempted
    #: mean frequency of the usable cores, at the beginning and the end
    frequency_MHz: Annotated[float | None, null_because("the operating system shows no frequency")]
    #: highest temperature of the processor, at the beginning and the end
    temperature_C: Annotated[float | None, null_because("the operating system shows no temperature of the processor")]


class EventCount(Struct, frozen=True, forbid_unknown_fields=True):
    """What an event counter counted in the timed blocks: of all threads, of all ranks of a process group."""

    name: str  #: its name, as in `case.measuring.counters`
    #: number of events; of `task_clock`, nanoseconds
    count: Annotated[Count | None, null_because("it could not be counted")]
    #: share of the time in which it was counted; `count` is scaled if it is below 1, because counters took turns
    counted_share: Annotated[float, Meta(ge=0, le=1)]


class Harness(Struct, frozen=True, forbid_unknown_fields=True):
    """The worker's time by stage, in chronological order; `wall_s` is the total, measured from outside."""

    wall_s: Seconds  #: duration of the whole process, measured from outside, including its profile
    stages_s: dict[str, Seconds]  #: duration of each stage that ended, in execution order


class Record(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One trial. A value that could not be obtained is null, and `reasons` states why, by the path of the null."""

    _repr_html_: ClassVar[Callable[[Record], str]]  # what a notebook shows, set by `display.records`

    schema_version: Literal[1]  #: version of this schema: 1
    run_id: str  #: the run of the trial: the name of its folder
    trial_id: str  #: the trial: the name of its file
    trial: Count  #: number of the trial among the trials of the same case in the run, from 0
    started_at: str  #: start of the trial, UTC, ISO 8601, to the second
    command: str  #: command line that repeats the case
    case: Case  #: one fully decided configuration
    #: the suite or the plan file that the trial was run from, see docs/plans.md
    suite: Annotated[TrialSuite | None, null_because("it was not run from a suite or a plan file")]
    design: Design  #: position of the trial among the other trials of its run
    status: Literal["ok", "failed"]  #: whether the trial succeeded; `ok` means at least one timed block
    error: Annotated[Failure | None, NULL_IS_AN_ANSWER]  #: why the trial failed; null if it did not
    machine: Machine  #: the machine at the start of the trial
    machines: list[
        Machine
    ]  #: those of all nodes, each as `machine`, which is the first; empty if the case has one node
    #: what a launcher gave to the run, see docs/clusters.md; null if it ran outside of any
    allocation: Annotated[Allocation | None, null_because("it ran outside any allocation of a launcher")]
    software: Software  #: the software that ran
    #: the user's file that was measured, see docs/own-code.md; null if the problem is a plugin
    source: Annotated[SourceFile | None, NULL_IS_AN_ANSWER] = None
    device: Annotated[DeviceInfo | None, NOT_REACHED]  #: the device that was measured
    #: the number types that `case.precision` stands for, with the options of the case
    types: Annotated[Types | None, NOT_REACHED]
    inputs: Annotated[Inputs | None, NOT_REACHED]  #: the sets of inputs that the steps take in turns
    #: time to draw weights and inputs, put them on the device, and build the workload
    build_s: Annotated[Seconds | None, NOT_REACHED]
    #: time of the first step, including compilation, until its result is available
    compile_s: Annotated[Seconds | None, NOT_REACHED]
    check: Annotated[Check | None, NOT_REACHED]  #: comparison of the outputs at a small size with the float64 reference
    preheat: Annotated[Preheat | None, NOT_REACHED]  #: the steps before timing
    blocks: Annotated[Blocks | None, NOT_REACHED]  #: the timed part
    #: what each rank of a process group measured; empty if one process computed the case, see docs/devices.md
    ranks: list[Rank]
    #: blocks of several devices with and without communication, by turns, after the timed part, see docs/devices.md;
    #: null for one device, or with the reason
    local: Annotated[Local | None, null_because("one device exchanges nothing")]
    #: how long the device computes steps by its own clock, see docs/measuring.md; null with the reason
    device_time: Annotated[
        DeviceTime | None, null_because("{case.framework} on {case.device} has no clock but the host's")
    ]
    #: times of single tokens, each waited for; null if the steps generate no text, see docs/problems.md
    token_times: Annotated[TokenTimes | None, null_because("its steps generate no text")]
    cost: Annotated[CostPart | None, NOT_REACHED]  #: work of one step
    #: what the workload tells of itself; if it is a program, also the operating system, see docs/programs.md
    figures: list[Figure] = []
    suspicions: list[str] = []  #: what makes the time doubtful, see docs/own-code.md
    #: peak memory from the start of the process, read after timing; in a process group, the sum over its ranks
    memory: Annotated[Memory | None, SHARED]
    #: interference counters of the operating system during the timed part (in a duet, of both cases; over several
    #: nodes, what the ranks did is the sum, and the rest is that of the node where it is worst)
    interference: Annotated[Interference | None, NOT_REACHED]
    #: event counters of the timed blocks, in the order of `case.measuring.counters`; empty without `--counters`, or if
    #: the trial failed before
    counters: list[EventCount] = []
    energy: Annotated[Energy | None, SHARED]  #: energy of the window
    telemetry: list[Conditions]  #: the state of each device in the window
    meters: list[MeterReport]  #: every meter that was queried
    trace: Annotated[Trace | None, null_because("it was not profiled; use --profile")]  #: the profile as a whole
    scopes: list[Scope]  #: every scope in each phase, longest time first; empty without a profile
    #: kernels that take at least 0.2% of the busy time, grouped by name, scope and phase, and by whether FLOPs and
    #: bytes are known; the event table has all kernels
    kernels: list[Kernel]
    harness: Harness  #: how the time of the trial was spent
    reasons: dict[str, str]  #: the reason for each null

    @property
    def not_timed(self) -> str:
        """Why it has no time, if it has none."""
        return EMULATED if self.case.is_emulated and self.error is None else "no timed block"

    @property
    def node_names(self) -> list[str]:
        """The names of its nodes, by their places in `machines`; none if it has one, or they were not reached."""
        return self.allocation.nodes[: len(self.machines)] if self.allocation else []

    def __post_init__(self) -> None:
        """Check what the types cannot express; raises ValueError."""
        if (self.status == "failed") != (self.error is not None):
            raise ValueError("`error` must be present exactly if `status` is 'failed'")
        is_timed = bool(self.blocks and self.blocks.duration_ns)
        if self.case.is_emulated and (is_timed or self.energy):
            raise ValueError(f"{self.case.precision} is emulated: it must have no times and no energy")
        if self.status == "ok" and not (is_timed or self.case.is_emulated):
            raise ValueError("an 'ok' record must contain at least one timed block")
        timed = len(self.blocks.duration_ns) if self.blocks else 0
        if any(len(rank.duration_ns) != timed for rank in self.ranks):
            raise ValueError("each of `ranks` must have the duration of every timed block")
        if self.machines and not (1 < len(self.machines) == self.case.nodes):
            raise ValueError("`machines` must be those of all nodes of the case, if it has several")
        if any(rank.node >= max(1, len(self.machines)) for rank in self.ranks):
            raise ValueError("the node of each of `ranks` must be one of `machines`")
        sensors = self.energy.sensors if self.energy else []
        sensed = {each.node for several in (sensors, self.telemetry, self.meters) for each in several}
        if any(node >= max(1, len(self.machines)) for node in sensed):
            raise ValueError("the node of what meters read must be one of `machines`")
        if self.local and not _is_whole(self.local, self.case):
            raise ValueError("each turn of `local` must have a block of every rank, of every device, and of one alone")
        unexplained = sorted(set(nulls(self)) - self.reasons.keys())
        if unexplained:
            raise ValueError(f"null without a reason: {', '.join(unexplained)}")


def _is_whole(local: Local, case: Case) -> bool:
    """Whether each turn has all its durations, and each device had its turn alone."""
    turns = {len(each) for each in (local.synchronised_ns, local.together_ns, local.alone_device, local.alone_ns)}
    return (
        len(turns) == 1
        and all(len(turn) == case.ranks for turn in local.synchronised_ns)
        and all(len(turn) == case.devices for turn in local.together_ns)
        and set(local.alone_device) == set(range(case.devices))
    )


Location = tuple[str, ...]


def location(host: str, allocation: Allocation | None) -> Location:
    """Return where something is measured: the host, and its allocation until the launcher takes it away."""
    if allocation is None:
        return (host,)
    return host, allocation.launcher, allocation.job, str(allocation.restarts), *allocation.nodes


REASONS = declared_reasons(Record)
"""Why each null may occur in a record, by path with `[]` for an index; None if null needs no reason."""
_INDEX = re.compile(r"\[\d+\]")


def reason(path: str, case: Case) -> str:
    """Return the declared reason for the null at a path of the record of a case."""
    return (REASONS[_INDEX.sub("[]", path)] or "").format(case=case)


class _Field(NamedTuple):
    """A field that may contain a null that needs a reason: itself, or `below` in it or in each of its items."""

    name: str
    needs_reason: bool
    is_list: bool
    below: tuple[_Field, ...]


def _fields(prefix: str) -> tuple[_Field, ...]:
    """Return the fields below a path of `REASONS`, which a path that goes on with `[]` gives as a list."""
    paths = {path.removeprefix(prefix): why for path, why in REASONS.items() if path.startswith(prefix)}
    fields = []
    for name in dict.fromkeys(path.partition(".")[0] for path in paths):
        below = _fields(f"{prefix}{name}.")
        field = _Field(name.removesuffix("[]"), paths.get(name) is not None, name.endswith("[]"), below)
        if field.needs_reason or field.below:
            fields.append(field)
    return tuple(fields)


_RECORD = _fields("")


def nulls(record: Record | Mapping[str, Any]) -> list[str]:
    """Return the paths of the nulls that need a reason in a record, or among its fields as plain values."""
    paths: list[str] = []

    def walk(part: Any, fields: tuple[_Field, ...], prefix: str) -> None:
        is_plain = isinstance(part, dict)
        for name, needs_reason, is_list, below in fields:
            if is_plain and name not in part:
                continue
            value = part[name] if is_plain else getattr(part, name)
            if value is None:
                if needs_reason:
                    paths.append(prefix + name)
            elif is_list:
                for index, item in enumerate(value):
                    walk(item, below, f"{prefix}{name}[{index}].")
            elif below:
                walk(value, below, f"{prefix}{name}.")

    walk(record, _RECORD, "")
    return paths


def schema() -> dict[str, Any]:
    """Return the JSON Schema of a record."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(Record)}
