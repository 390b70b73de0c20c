"""The record: what one trial measured, raw, in units that its names carry.

Schema history (`SCHEMA_VERSION`):
1  first
2  `design` (where the trial stood in its run), `witnesses` (what disturbed it); failures of kind `skipped`, `partner`
3  `trace`, `scopes`, `kernels` (what a profile says)
4  `energy`, `telemetry`, `meters` (what was sensed); power and temperature in `preheat`; `witnesses.temperature_C`;
   `device.pci`
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from benchmarker.api import Case
from benchmarker.power.summary import Conditions, Energy, MeterReport
from benchmarker.traces.summary import Kernel, Scope, Trace

SCHEMA_VERSION: Literal[4] = 4

Seconds = Annotated[float, Meta(ge=0)]
Count = Annotated[int, Meta(ge=0)]


class Failure(Struct, frozen=True, forbid_unknown_fields=True):
    """Why a trial failed: `exit` is the worker's exit status (negative: the signal that ended it).

    `skipped` was not begun, since the same or a smaller case ran out of memory; `partner`: the other case of a duet
    failed.
    """

    kind: Literal["out_of_memory", "exception", "killed", "timeout", "check", "skipped", "partner"]
    message: str
    stage: str
    exit: int | None = None


class Check(Struct, frozen=True, forbid_unknown_fields=True):
    """The largest relative error (2-norm) of any output against the float64 reference, at a small size."""

    error: Annotated[float, Meta(ge=0)]
    output: str
    bound: Annotated[float, Meta(ge=0)]
    ok: bool


class Preheat(Struct, frozen=True, forbid_unknown_fields=True):
    """What ran before timing: until the rate stood still (`plateau`, else `timeout`), or a `fixed` count.

    Where there are sensors, power and temperature had to stand still too: `window_power_W` and
    `window_temperature_C` hold what was read at the end of each window.
    """

    outcome: Literal["plateau", "timeout", "fixed"]
    duration_s: Seconds
    steps: Count
    window_steps_per_s: list[float]
    window_power_W: list[float] = []
    window_temperature_C: list[float] = []


StoppedBy = Literal["blocks", "seconds", "median_precision", "power_min", "failure"]


class Blocks(Struct, frozen=True, forbid_unknown_fields=True):
    """Timed blocks: the duration of each, from one synchronisation to the next, on the monotonic clock."""

    steps_per_block: Annotated[int, Meta(ge=1)]
    duration_ns: list[Annotated[int, Meta(ge=1)]]
    stopped_by: StoppedBy


class CostPart(Struct, frozen=True, forbid_unknown_fields=True):
    """Work of one step by formula; `recomputed_flops` is forward work done again in the backward pass."""

    flops: Count
    recomputed_flops: Count
    bytes: Count
    samples: Count
    tokens: Count | None


class Memory(Struct, frozen=True, forbid_unknown_fields=True):
    """Peak memory: on the device by the framework's count, on the host by the resident set of the worker."""

    device_peak_bytes: Count | None
    host_peak_rss_bytes: Count | None


class Types(Struct, frozen=True, forbid_unknown_fields=True):
    """Number types that the precision stands for, and the framework's settings as read back from it."""

    parameter: str
    compute: str
    accumulate: str
    lowest: str
    settings: dict[str, str]


class DeviceInfo(Struct, frozen=True, forbid_unknown_fields=True):
    """The device that was measured."""

    platform: str
    name: str
    uuid: str | None
    pci: str | None
    memory_bytes: Count | None


class Cpu(Struct, frozen=True, forbid_unknown_fields=True):
    """The processor; `governor` and `frequency_max_MHz` as the operating system reports them."""

    model: str
    physical_cores: Count | None
    logical_cores: Count
    usable_cores: Count
    smt: bool | None
    governor: str | None
    frequency_max_MHz: float | None


class Gpu(Struct, frozen=True, forbid_unknown_fields=True):
    """One GPU as its vendor's tool reports it, and the compute processes found on it."""

    index: Count
    name: str
    uuid: str
    driver: str | None
    compute_capability: str | None
    memory_bytes: Count | None
    power_limit_W: float | None
    ecc: str | None
    mig: str | None
    processes: Count | None


class Machine(Struct, frozen=True, forbid_unknown_fields=True):
    """The machine at the start of a trial."""

    host: str
    os: str
    kernel: str
    virtualization: str | None
    container: str | None
    cpu: Cpu
    cpu_quota_cores: float | None
    memory_bytes: Count
    swap_used_bytes: Count
    gpus: list[Gpu]
    load_average_1min: float
    steal_percent: float | None


class Software(Struct, frozen=True, forbid_unknown_fields=True):
    """What ran: versions, the environment variables that change its speed, the commit of this project."""

    python: str
    benchmarker: str
    commit: str | None
    libraries: dict[str, str]
    variables: dict[str, str]
    threads: Count | None


DesignKind = Literal["blocks", "duet"]


class Design(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where the trial stood in its run: `case_number` in the plan, the `slot`th process of the block `trial`.

    A run that may stop early `looks` at its verdict after these numbers of blocks; one that does not has none. In a
    duet two cases take turns in one process: `partner` is the trial of the other, and `partner_first` says, of each
    timed block, whether the partner's was timed before it.
    """

    kind: DesignKind = "blocks"
    case_number: Count = 0
    slot: Count = 0
    looks: list[Count] = []
    partner: str | None = None
    partner_first: list[bool] = []


class Witnesses(Struct, frozen=True, forbid_unknown_fields=True):
    """What went on beside the timed part, `duration_s` long, as the operating system counts it."""

    duration_s: Seconds
    own_busy_cores: Seconds
    other_busy_cores: Seconds | None
    steal_percent: float | None
    pressure_percent: float | None
    throttled_s: Seconds | None
    voluntary_switches: Count
    involuntary_switches: Count
    frequency_MHz: float | None
    temperature_C: float | None


class Harness(Struct, frozen=True, forbid_unknown_fields=True):
    """Where the worker's time went, in the order that it went there; `wall_s` is the whole, seen from outside."""

    wall_s: Seconds
    stages_s: dict[str, Seconds]


class Record(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One trial. What could not be had is null, and `reasons` says why, by the path of the null."""

    schema_version: Literal[4]
    run_id: str
    trial_id: str
    trial: Count
    started_at: str
    command: str
    case: Case
    design: Design
    status: Literal["ok", "failed"]
    error: Failure | None
    machine: Machine
    software: Software
    device: DeviceInfo | None
    types: Types | None
    build_s: Seconds | None
    compile_s: Seconds | None
    check: Check | None
    preheat: Preheat | None
    blocks: Blocks | None
    cost: CostPart | None
    memory: Memory | None
    witnesses: Witnesses | None
    energy: Energy | None
    telemetry: list[Conditions]
    meters: list[MeterReport]
    trace: Trace | None
    scopes: list[Scope]
    kernels: list[Kernel]
    harness: Harness
    reasons: dict[str, str]

    def __post_init__(self) -> None:
        """Hold what the types cannot say; raises ValueError."""
        if (self.status == "failed") != (self.error is not None):
            raise ValueError("`error` stands exactly where `status` is 'failed'")
        if self.status == "ok" and not (self.blocks and self.blocks.duration_ns):
            raise ValueError("an 'ok' record holds at least one timed block")
        unexplained = sorted(set(nulls(msgspec.to_builtins(self))) - self.reasons.keys())
        if unexplained:
            raise ValueError(f"null without a reason: {', '.join(unexplained)}")


# Here null is an answer, not a lack.
_OPTIONAL = {
    "error",
    "error.exit",
    "case.gpu",
    "case.threads",
    "case.measuring.median_precision",
    "design.partner",
    "scopes[].occurrences",
    "scopes[].expected",
    "kernels[].flops",
    "kernels[].bytes",
}
_INDEX = re.compile(r"\[\d+\]")


def nulls(fields: Mapping[str, Any]) -> list[str]:
    """Paths of the nulls that want a reason among a record's fields (as plain values)."""
    found: list[str] = []

    def walk(value: Any, path: str) -> None:
        if value is None and _INDEX.sub("[]", path) not in _OPTIONAL:
            found.append(path)
        elif isinstance(value, dict):
            for key, item in value.items():
                walk(item, f"{path}.{key}")
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            for index, item in enumerate(value):
                walk(item, f"{path}[{index}]")

    for name, value in fields.items():
        walk(value, name)
    return found


class _Versioned(Struct):
    schema_version: int


def read(content: bytes) -> Record:
    """The record in a file's content, of this version of the schema or an earlier one; raises msgspec.DecodeError."""
    version = msgspec.json.decode(content, type=_Versioned).schema_version
    if version not in (1, 2, 3):
        return msgspec.json.decode(content, type=Record)
    fields = msgspec.json.decode(content, type=dict[str, Any])
    lacking = f"schema version {version} had none"
    reasons = {"energy": lacking}
    if version == 1:
        reasons["witnesses"] = lacking
        fields |= {"design": {}, "witnesses": None}
    elif fields.get("witnesses"):
        reasons["witnesses.temperature_C"] = lacking
        fields["witnesses"]["temperature_C"] = None
    if fields.get("device"):
        reasons["device.pci"] = lacking
        fields["device"]["pci"] = None
    if version < 3:
        reasons["trace"] = lacking
        fields |= {"trace": None, "scopes": [], "kernels": []}
    fields["reasons"] = {**fields.get("reasons", {}), **reasons}
    fields |= {"schema_version": SCHEMA_VERSION, "energy": None, "telemetry": [], "meters": []}
    return msgspec.convert(fields, Record)


def schema() -> dict[str, Any]:
    """The JSON Schema of a record."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(Record)}
