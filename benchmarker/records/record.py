"""The record: the raw measurements of one trial, in the units that the field names carry."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta, Struct

from benchmarker.api.case import Case
from benchmarker.api.fields import NULL_IS_AN_ANSWER, Count, Positive, declared_reasons, null_because
from benchmarker.api.launcher import Allocation
from benchmarker.records.energy import Conditions, Energy, MeterReport
from benchmarker.records.profile import Kernel, Scope, Trace
from benchmarker.records.suite import TrialSuite

SCHEMA_VERSION: Literal[1] = 1

Seconds = Annotated[float, Meta(ge=0)]

NOT_REACHED = null_because("the trial ended before it was known")
SHARED = null_because("two cases shared the process, so the use of each cannot be separated")


class Failure(Struct, frozen=True, forbid_unknown_fields=True):
    """Why a trial failed; `exit` is the worker's exit status (negative: the signal that ended it).

    `skipped` means that the trial was not started because the same or a smaller case had run out of memory. `partner`
    means that the other case of a duet failed. `preempted` means that the launcher took the allocation away
    meanwhile; the trial is repeated when the run goes on. In a gang, `rank` is the rank that failed first, and over
    several nodes, `node` is its node. `node` as the kind means that this node was lost.
    """

    kind: Literal["out_of_memory", "exception", "killed", "timeout", "check", "skipped", "partner", "preempted", "node"]
    message: str
    stage: str
    exit: Annotated[int | None, NULL_IS_AN_ANSWER] = None
    rank: Annotated[Count | None, NULL_IS_AN_ANSWER] = None
    node: Annotated[str | None, NULL_IS_AN_ANSWER] = None


class Check(Struct, frozen=True, forbid_unknown_fields=True):
    """The largest relative error (2-norm) of any output, compared with the float64 reference at a small size."""

    error: Annotated[float, Meta(ge=0)]
    output: str
    bound: Annotated[float, Meta(ge=0)]
    ok: bool


class Preheat(Struct, frozen=True, forbid_unknown_fields=True):
    """The steps before timing: until the step rate was steady (`plateau`, otherwise `timeout`), or a `fixed` number.

    If there are sensors, power and temperature had to be steady too: `window_power_W` and
    `window_temperature_C` are the readings at the end of each window.
    """

    outcome: Literal["plateau", "timeout", "fixed"]
    duration_s: Seconds
    steps: Count
    window_steps_per_s: list[float]
    window_power_W: list[float] = []
    window_temperature_C: list[float] = []


StoppedBy = Literal["blocks", "seconds", "median_precision", "power_min", "failure"]


class Blocks(Struct, frozen=True, forbid_unknown_fields=True):
    """Timed blocks: the duration of each, from one synchronisation to the next, on the monotonic clock.

    In a gang, it is that of the rank that took longest.
    """

    steps_per_block: Positive
    duration_ns: list[Positive]
    stopped_by: StoppedBy


class TokenTimes(Struct, frozen=True, forbid_unknown_fields=True):
    """When tokens were ready on the host, each waited for: those of one request for text after the other.

    `first_ns` is the time from each request to its first token, `gap_ns` the times from one token to the next. A
    request without a prompt has no first token, and one that ends with its first token has no gaps.
    """

    first_ns: list[Positive]
    gap_ns: list[list[Positive]]


class CostPart(Struct, frozen=True, forbid_unknown_fields=True):
    """Work of one step by formula; `recomputed_flops` is forward work that is repeated in the backward pass.

    In text generation, `input_tokens` are those of the prompts, and `output_tokens` those that are generated.
    """

    flops: Count
    recomputed_flops: Count
    bytes: Count
    samples: Count
    tokens: Annotated[Count | None, null_because("{case.problem} has no tokens")]
    input_tokens: Count = 0
    output_tokens: Count = 0


class Memory(Struct, frozen=True, forbid_unknown_fields=True):
    """Peak memory: on the device as counted by the framework, on the host as the resident set of the worker.

    In a gang, it is the sum over its ranks; memory that they share counts for each.
    """

    device_peak_bytes: Annotated[Count | None, null_because("{case.framework} counts no allocations on {case.device}")]
    host_peak_rss_bytes: Annotated[Count | None, null_because("the operating system does not count it")]


class Rank(Struct, frozen=True, forbid_unknown_fields=True):
    """One process of a gang: the numbers of its devices, its own duration of each timed block, its peak memory.

    `node` is the place of its node in `allocation.nodes`, and in `machines`; it is 0 if there is one.
    """

    rank: Count
    node: Count
    devices: list[Count]
    duration_ns: list[Positive]
    memory: Annotated[Memory | None, NOT_REACHED]


class Local(Struct, frozen=True, forbid_unknown_fields=True):
    """Blocks of several devices with and without communication, by turns, after the timed part.

    Each turn has a block of the step, with its duration in each rank; a block of the work of each device without
    communication, on all devices at once; and the same on one device alone, the others being idle.
    """

    steps_per_block: Positive
    synchronised_ns: list[list[Positive]]
    together_ns: list[list[Positive]]
    alone_device: list[Count]
    alone_ns: list[Positive]


class Types(Struct, frozen=True, forbid_unknown_fields=True):
    """The number types of the precision, and the framework's settings as read back from it."""

    parameter: str
    compute: str
    accumulate: str
    lowest: str
    settings: dict[str, str]


class DeviceInfo(Struct, frozen=True, forbid_unknown_fields=True):
    """The device that was measured."""

    platform: str
    name: str
    uuid: Annotated[str | None, null_because("{case.framework} reports none for {case.device}")]
    pci: Annotated[str | None, null_because("{case.framework} reports none for {case.device}")]
    memory_bytes: Annotated[Count | None, null_because("{case.framework} reports none for {case.device}")]


class Cpu(Struct, frozen=True, forbid_unknown_fields=True):
    """The processor; `governor` and `frequency_max_MHz` are as reported by the operating system."""

    model: str
    physical_cores: Annotated[Count | None, null_because("the operating system does not report it")]
    logical_cores: Count
    usable_cores: Count
    smt: Annotated[bool | None, null_because("the operating system does not report it")]
    governor: Annotated[str | None, null_because("the operating system shows no frequency governor")]
    frequency_max_MHz: Annotated[float | None, null_because("the operating system shows no frequency limits")]


class Gpu(Struct, frozen=True, forbid_unknown_fields=True):
    """One GPU as reported by its vendor's tool, and the number of compute processes found on it."""

    index: Count
    name: str
    uuid: str
    driver: Annotated[str | None, null_because("nvidia-smi reports no value for it")]
    compute_capability: Annotated[str | None, null_because("nvidia-smi reports no value for it")]
    memory_bytes: Annotated[Count | None, null_because("nvidia-smi reports no value for it")]
    power_limit_W: Annotated[float | None, null_because("nvidia-smi reports no value for it")]
    ecc: Annotated[str | None, null_because("nvidia-smi reports no value for it")]
    mig: Annotated[str | None, null_because("nvidia-smi reports no value for it")]
    processes: Annotated[Count | None, null_because("nvidia-smi reports no value for it")]


class Machine(Struct, frozen=True, forbid_unknown_fields=True):
    """The machine at the start of a trial."""

    host: str
    model: Annotated[str | None, null_because("the system does not report the model of the machine")]
    os: str
    kernel: str
    virtualization: Annotated[str | None, null_because("no hypervisor was detected")]
    container: Annotated[str | None, null_because("no container was detected")]
    cpu: Cpu
    cpu_quota_cores: Annotated[float | None, null_because("no cgroup limits processor time")]
    memory_bytes: Count
    swap_used_bytes: Count
    gpus: list[Gpu]
    load_average_1min: float
    steal_percent: Annotated[float | None, null_because("the operating system does not count stolen time")]


class Software(Struct, frozen=True, forbid_unknown_fields=True):
    """The software that ran: versions, the environment variables that change its speed, the commit of this project."""

    python: str
    benchmarker: str
    commit: Annotated[str | None, null_because("benchmarker does not run from a git checkout, or git cannot read it")]
    libraries: dict[str, str]
    variables: dict[str, str]
    threads: Annotated[Count | None, null_because("{case.framework} cannot report it on this system")]


DesignKind = Literal["rounds", "duet"]


class Design(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The trial's position in its run: `case_number` in the plan, the `slot`th process of the round `trial`.

    `session` counts the parts of a run that is spread over time (`--runs`), from 0.
    `looks` are the numbers of rounds after which a run that may stop early examines its verdict; it is empty for other
    runs. In a duet two cases take turns in one process: `partner` is the trial of the other case, and `partner_first`
    states for each timed block whether the partner's was timed before it.
    """

    kind: DesignKind = "rounds"
    case_number: Count = 0
    slot: Count = 0
    session: Count = 0
    looks: list[Count] = []
    partner: Annotated[str | None, NULL_IS_AN_ANSWER] = None
    partner_first: list[bool] = []


class Interference(Struct, frozen=True, forbid_unknown_fields=True):
    """Interference counters: what the operating system counted during the timed part, `duration_s` long.

    Over several nodes, `own_busy_cores` and switches are sums, and the others are those of the node where they are
    worst.
    """

    duration_s: Seconds
    own_busy_cores: Seconds
    other_busy_cores: Annotated[Seconds | None, null_because("the operating system does not count it")]
    steal_percent: Annotated[float | None, null_because("the operating system does not count stolen time")]
    pressure_percent: Annotated[float | None, null_because("the operating system shows no pressure stall information")]
    throttled_s: Annotated[Seconds | None, null_because("no cgroup counts throttled time")]
    voluntary_switches: Count
    involuntary_switches: Count
    frequency_MHz: Annotated[float | None, null_because("the operating system shows no frequency")]
    temperature_C: Annotated[float | None, null_because("the operating system shows no temperature of the processor")]


class Harness(Struct, frozen=True, forbid_unknown_fields=True):
    """The worker's time by stage, in chronological order; `wall_s` is the total, measured from outside."""

    wall_s: Seconds
    stages_s: dict[str, Seconds]


class Record(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One trial. A value that could not be obtained is null, and `reasons` states why, by the path of the null.

    `machine` is where the parent ran. `machines` are those of all nodes, that one first, if a case has several and
    they were reached; otherwise there are none.
    """

    schema_version: Literal[1]
    run_id: str
    trial_id: str
    trial: Count
    started_at: str
    command: str
    case: Case
    suite: Annotated[TrialSuite | None, null_because("it was not run from a suite or a plan file")]
    design: Design
    status: Literal["ok", "failed"]
    error: Annotated[Failure | None, NULL_IS_AN_ANSWER]
    machine: Machine
    machines: list[Machine]
    allocation: Annotated[Allocation | None, null_because("it ran outside any allocation of a launcher")]
    software: Software
    device: Annotated[DeviceInfo | None, NOT_REACHED]
    types: Annotated[Types | None, NOT_REACHED]
    build_s: Annotated[Seconds | None, NOT_REACHED]
    compile_s: Annotated[Seconds | None, NOT_REACHED]
    check: Annotated[Check | None, NOT_REACHED]
    preheat: Annotated[Preheat | None, NOT_REACHED]
    blocks: Annotated[Blocks | None, NOT_REACHED]
    ranks: list[Rank]
    local: Annotated[Local | None, null_because("one device exchanges nothing")]
    token_times: Annotated[TokenTimes | None, null_because("its steps generate no text")]
    cost: Annotated[CostPart | None, NOT_REACHED]
    memory: Annotated[Memory | None, SHARED]
    interference: Annotated[Interference | None, NOT_REACHED]
    energy: Annotated[Energy | None, SHARED]
    telemetry: list[Conditions]
    meters: list[MeterReport]
    trace: Annotated[Trace | None, null_because("it was not profiled; use --profile")]
    scopes: list[Scope]
    kernels: list[Kernel]
    harness: Harness
    reasons: dict[str, str]

    @property
    def node_names(self) -> list[str]:
        """The names of its nodes, by their places in `machines`; none if it has one, or they were not reached."""
        return self.allocation.nodes[: len(self.machines)] if self.allocation else []

    def __post_init__(self) -> None:
        """Check what the types cannot express; raises ValueError."""
        if (self.status == "failed") != (self.error is not None):
            raise ValueError("`error` must be present exactly if `status` is 'failed'")
        if self.status == "ok" and not (self.blocks and self.blocks.duration_ns):
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
        and all(len(each) == case.ranks for each in local.synchronised_ns)
        and all(len(each) == case.devices for each in local.together_ns)
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
    found = []
    for name in dict.fromkeys(path.partition(".")[0] for path in paths):
        below = _fields(f"{prefix}{name}.")
        field = _Field(name.removesuffix("[]"), paths.get(name) is not None, name.endswith("[]"), below)
        if field.needs_reason or field.below:
            found.append(field)
    return tuple(found)


_RECORD = _fields("")


def nulls(record: Record | Mapping[str, Any]) -> list[str]:
    """Return the paths of the nulls that need a reason in a record, or among its fields as plain values."""
    found: list[str] = []

    def walk(part: Any, fields: tuple[_Field, ...], prefix: str) -> None:
        is_plain = isinstance(part, dict)
        for name, needs_reason, is_list, below in fields:
            if is_plain and name not in part:
                continue
            value = part[name] if is_plain else getattr(part, name)
            if value is None:
                if needs_reason:
                    found.append(prefix + name)
            elif is_list:
                for index, item in enumerate(value):
                    walk(item, below, f"{prefix}{name}[{index}].")
            elif below:
                walk(value, below, f"{prefix}{name}.")

    walk(record, _RECORD, "")
    return found


def schema() -> dict[str, Any]:
    """Return the JSON Schema of a record."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(Record)}
