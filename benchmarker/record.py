"""The record: what one trial measured, raw, in units that its names carry.

Schema history (`SCHEMA_VERSION`):
1  first
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from benchmarker.api import Case

SCHEMA_VERSION: Literal[1] = 1

Seconds = Annotated[float, Meta(ge=0)]
Count = Annotated[int, Meta(ge=0)]


class Failure(Struct, frozen=True, forbid_unknown_fields=True):
    """Why a trial failed: `exit` is the worker's exit status (negative: the signal that ended it)."""

    kind: Literal["out_of_memory", "exception", "killed", "timeout", "check"]
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
    """What ran before timing: until the rate stood still (`plateau`, else `timeout`), or a `fixed` count."""

    outcome: Literal["plateau", "timeout", "fixed"]
    duration_s: Seconds
    steps: Count
    window_steps_per_s: list[float]


StoppedBy = Literal["blocks", "seconds", "median_precision", "failure"]


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


class Harness(Struct, frozen=True, forbid_unknown_fields=True):
    """Where the worker's time went, in the order that it went there; `wall_s` is the whole, seen from outside."""

    wall_s: Seconds
    stages_s: dict[str, Seconds]


class Record(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One trial. What could not be had is null, and `reasons` says why, by the path of the null."""

    schema_version: Literal[1]
    run_id: str
    trial_id: str
    trial: Count
    started_at: str
    command: str
    case: Case
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
_OPTIONAL = {"error", "error.exit", "case.gpu", "case.threads", "case.measuring.median_precision"}


def nulls(fields: Mapping[str, Any]) -> list[str]:
    """Paths of the nulls that want a reason among a record's fields (as plain values)."""
    found: list[str] = []

    def walk(value: Any, path: str) -> None:
        if value is None and path not in _OPTIONAL:
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


def schema() -> dict[str, Any]:
    """The JSON Schema of a record."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(Record)}
