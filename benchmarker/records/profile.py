"""What a trace comes to: the parts of a record that say so. Times are in ns, and where it is not said, busy time."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from benchmarker.api.nulls import NULL_IS_AN_ANSWER

Count = Annotated[int, Meta(ge=0)]


class DeviceTime(Struct, frozen=True, forbid_unknown_fields=True):
    """A device, or where `track` is not empty one of its streams or threads; `wall_ns` is of the whole trace."""

    device: str
    track: str
    count: Count
    busy_ns: Count
    idle_ns: Count
    wall_ns: Count


class Scope(Struct, frozen=True, forbid_unknown_fields=True):
    """One scope in one phase.

    `root_ns` is the time of the rows that it is counted to, `any_ns` that of all in which one of its instructions is
    fused, `pure_ns` that of those which hold nothing else; `purity` is the mean of the share of its own instructions,
    weighted with time. `occurrences` is how often it ran, `expected` how often it should have.
    """

    scope: str
    phase: str
    rows: Count
    occurrences: Annotated[Count | None, NULL_IS_AN_ANSWER]
    expected: Annotated[Count | None, NULL_IS_AN_ANSWER]
    root_ns: Count
    any_ns: Count
    pure_ns: Count
    purity: float
    step_ns: list[Count]


class Kernel(Struct, frozen=True, forbid_unknown_fields=True):
    """Rows of one name, scope and phase; `std_ns` is the deviation of these, not an estimate of others.

    `flops` and `bytes` are sums over the rows whose shapes say them, and null where none does.
    """

    name: str
    op: str
    category: str
    rule: str
    scope: str
    phase: str
    count: Count
    total_ns: Count
    self_ns: Count
    busy_ns: Count
    mean_ns: float
    median_ns: float
    p5_ns: float
    p95_ns: float
    min_ns: Count
    max_ns: Count
    std_ns: float
    flops: Annotated[float | None, NULL_IS_AN_ANSWER]
    bytes: Annotated[float | None, NULL_IS_AN_ANSWER]


class Trace(Struct, frozen=True, forbid_unknown_fields=True):
    """What was traced, how its time divides, and whether all of it is there.

    `missing` says what should be in the trace and is not; where it is empty the trace is `complete`. `notes` say what
    was left out on purpose. `outside_ns` is the time outside any scope, `uncategorised_ns` that without a category.
    `communication_ns` is the time in which data moved between devices, `hidden_ns` that part of it in which something
    else ran.
    """

    format: Literal["xplane", "chrome"]
    framework: str
    separable: bool
    variables: dict[str, str]
    rows: Count
    kernels: Count
    steps: Count
    step_ns: list[Count]
    wall_ns: Count
    busy_ns: Count
    idle_ns: Count
    communication_ns: Count
    hidden_ns: Count
    outside_ns: Count
    uncategorised_ns: Count
    unmatched_ops: Count
    unmatched_backward: Count
    unlaunched: Count
    overlapping: Count
    uneven: Count
    devices: list[DeviceTime]
    missing: list[str]
    notes: list[str]
    complete: bool
