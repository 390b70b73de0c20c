"""The parts of a record that summarise a trace; times are in ns, and are busy time unless stated otherwise."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Struct

from benchmarker.api.fields import NULL_IS_AN_ANSWER, Count


class DeviceTime(Struct, frozen=True, forbid_unknown_fields=True):
    """A device or, if `track` is not empty, one of its streams or threads; `wall_ns` is that of the trace."""

    device: str
    track: str
    count: Count
    busy_ns: Count
    idle_ns: Count
    wall_ns: Count


class Scope(Struct, frozen=True, forbid_unknown_fields=True):
    """One scope in one phase.

    `root_ns` is the time of the rows that are attributed to the scope. `any_ns` is the time of all rows that contain at
    least one of its instructions (after fusion). `pure_ns` is the time of the rows that contain nothing else. `purity`
    is the time-weighted mean share of its own instructions. `occurrences` is how often the scope ran, `expected` how
    often it should have run.
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
    """Rows of one name, scope and phase; `std_ns` is the standard deviation of these rows only (divided by n).

    `flops` and `bytes` are sums, and null if the shapes do not determine them. Rows for which they do and rows for
    which they do not are separate lines.
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


_SMALL = 5e-4
"""Smaller differences are no tenth of a percent."""


class Exchange(Struct, frozen=True, forbid_unknown_fields=True):
    """Collectives of one kind in a step, the mean over steps and devices, and what the problem's formula says of them.

    `bytes` is the sum of their sizes as NCCL Tests define them: of the larger array of a device, its input or its
    output; null if a size is not known. What is expected is null if the problem does not say what a step exchanges.
    """

    op: str
    count: float
    bytes: Annotated[float | None, NULL_IS_AN_ANSWER]
    expected_count: Annotated[Count | None, NULL_IS_AN_ANSWER]
    expected_bytes: Annotated[Count | None, NULL_IS_AN_ANSWER]

    @property
    def difference(self) -> str:
        """How it differs from the formula, in words; empty if the formula is not known."""
        if self.expected_count is None or self.expected_bytes is None:
            return ""
        if not self.expected_count:
            return "not in the formula"
        if not self.count:
            return "not in the profile"
        more = 0.0 if self.bytes is None else self.bytes / self.expected_bytes - 1
        parts = [f"{more:+.1%} of bytes"] if abs(more) >= _SMALL else [f"{more:+.1g} of bytes"] if more else []
        if self.count != self.expected_count:
            parts.append("combined" if self.count < self.expected_count else "divided")
        return ", ".join(parts) or "none"


class Trace(Struct, frozen=True, forbid_unknown_fields=True):
    """What was traced, how its time is divided, and whether the trace is complete.

    `missing` lists what should be in the trace but is not; if it is empty, the trace is `complete`. `notes` list what
    was left out on purpose. `outside_ns` is the time outside any scope, `uncategorised_ns` the time without a category.
    `wall_ns` is the time covered by the profiled steps and by work; without steps, from the begin of the first work to
    the end of the last. It is the same for all devices; `busy_ns` and `idle_ns` are summed over them.
    `communication_ns` is the time in which data moved between devices, `hidden_ns` the part of it that overlapped with
    other work, and `waiting_ns` the part in which a device only waited for another one to begin, if that is known.
    `critical_ranks` has, for each step, the device for which the others waited longest, by its place among the devices;
    it is empty if that is not known. `exchanges` are the collectives of a step of several devices. `rank` is that of
    the traced process among the `world_size` processes of a distributed program; it is null if the trace is of all of
    them, each with devices of its own. `device_names` are those of the devices, if they are known.
    """

    format: Literal["xplane", "chrome", "nsys", "rocprof"]
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
    rank: Annotated[Count | None, NULL_IS_AN_ANSWER] = None
    world_size: Annotated[Count | None, NULL_IS_AN_ANSWER] = None
    waiting_ns: Annotated[Count | None, NULL_IS_AN_ANSWER] = None
    critical_ranks: list[Count] = []
    exchanges: list[Exchange] = []
    device_names: list[str] = []

    @property
    def whole_ns(self) -> int:
        """The wall time of all devices together."""
        return self.busy_ns + self.idle_ns

    @property
    def busy_share(self) -> float:
        """Busy time divided by wall time, the mean over devices."""
        return self.busy_ns / max(1, self.whole_ns)

    @property
    def communication_share(self) -> float:
        """Time of communication divided by wall time, the mean over devices."""
        return self.communication_ns / max(1, self.whole_ns)

    @property
    def waiting_share(self) -> float | None:
        """Time of waiting for other devices divided by wall time, the mean over devices; None if it is not known."""
        return None if self.waiting_ns is None else self.waiting_ns / max(1, self.whole_ns)

    @property
    def hidden_share(self) -> float:
        """Time of communication hidden behind other work, divided by wall time, the mean over devices."""
        return self.hidden_ns / max(1, self.whole_ns)
