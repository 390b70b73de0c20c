"""The parts of a record that summarise a trace; times are in ns, and are busy time unless stated otherwise."""

from typing import Annotated, Literal

from msgspec import Struct

from benchmarker.api.fields import NULL_IS_AN_ANSWER, Count


class DeviceTime(Struct, frozen=True, forbid_unknown_fields=True):
    """A device, or one of its streams or threads."""

    device: str  #: `cpu`, `gpu:0`, ...; `cpu:0`, `cpu:1`, ... if a CPU is divided into several
    track: str  #: the stream or thread; empty for the device as a whole
    count: Count  #: rows of work
    busy_ns: Count  #: time in which work ran
    idle_ns: Count  #: the rest of the time
    wall_ns: Count  #: wall time of the trace


class Scope(Struct, frozen=True, forbid_unknown_fields=True):
    """One scope in one phase. The list has the longest time first, and is empty without a profile."""

    scope: str  #: name of the scope; empty for work outside any scope
    phase: str  #: `forward`, `backward`, `remat`, or empty if unknown
    rows: Count  #: rows of work that are attributed to the scope
    occurrences: Annotated[Count | None, NULL_IS_AN_ANSWER]  #: how often the scope ran; null if unknown
    #: how often the scope should have run, according to the problem; null if nothing is expected
    expected: Annotated[Count | None, NULL_IS_AN_ANSWER]
    root_ns: Count  #: time of the rows attributed to the scope; a fusion is attributed by its root
    any_ns: Count  #: time of all rows that contain at least one instruction of the scope
    pure_ns: Count  #: time of the rows that contain nothing but this scope
    purity: float  #: time-weighted mean of the share of the scope's own instructions in the rows attributed to it
    step_ns: list[Count]  #: `root_ns` of each step


class Kernel(Struct, frozen=True, forbid_unknown_fields=True):
    """Kernels of one name, scope and phase that take at least 0.2% of the busy time; the event table has all kernels.

    Those whose FLOPs and bytes are known and those whose are not are separate entries.
    """

    name: str  #: name given by the profiler
    op: str  #: the HLO instruction that the kernel executes, or the op that launched it
    category: str  #: purpose of the kernel: `gemm`, `attention`, `communication`, ...
    rule: str  #: the rule that assigned the category
    scope: str  #: the scope that the kernel is attributed to
    phase: str  #: the phase; empty if unknown
    count: Count  #: number of executions
    total_ns: Count  #: sum of durations, including enclosed rows; an asynchronous op lasts until it is complete
    self_ns: Count  #: the same without enclosed rows
    busy_ns: Count  #: share of the busy time
    mean_ns: float  #: mean of the self times; the following statistics are of the self times too
    median_ns: float  #: median
    p5_ns: float  #: 5th percentile
    p95_ns: float  #: 95th percentile
    min_ns: Count  #: minimum
    max_ns: Count  #: maximum
    std_ns: float  #: standard deviation of these values (divided by n)
    #: operations of the executions; null if their shapes are not known; those of causal attention count half the
    #: products if `trace.notes` says so
    flops: Annotated[float | None, NULL_IS_AN_ANSWER]
    bytes: Annotated[float | None, NULL_IS_AN_ANSWER]  #: minimum memory traffic of these executions


_SMALL = 5e-4
"""Smaller differences are no tenth of a percent."""


class Exchange(Struct, frozen=True, forbid_unknown_fields=True):
    """Collectives of one kind in a step, the mean over steps and devices, and what the formula says of them."""

    op: str  #: `all_reduce`, `all_gather`, `reduce_scatter`, `send_recv`, ...
    count: float  #: how many there are
    #: the sum of their sizes as NCCL Tests define them: of the larger array of a device, its input or its output; null
    #: if a size is not known
    bytes: Annotated[float | None, NULL_IS_AN_ANSWER]
    #: how many there should be by the problem's formula; null if it has none
    expected_count: Annotated[Count | None, NULL_IS_AN_ANSWER]
    expected_bytes: Annotated[Count | None, NULL_IS_AN_ANSWER]  #: the sum of their sizes by the formula

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
    """What was traced, how its time is divided, and whether the trace is complete (docs/traces.md).

    Unless stated otherwise, times are busy time, summed over the profiled steps.
    """

    format: Literal["xplane", "chrome", "nsys", "rocprof"]  #: format of the profiler's file
    framework: str  #: framework that wrote the file: `jax`, `tensorflow`, `torch`, or empty if unknown
    separable: bool  #: whether the profile was taken with `--separable`, which keeps scopes apart
    variables: dict[str, str]  #: environment variables of the profiled process, as in `software.variables`
    rows: Count  #: rows of the event table
    #: rows that are work: what an accelerator executed, or the ops of the host if no accelerator executed anything
    kernels: Count
    steps: Count  #: profiled steps
    step_ns: list[Count]  #: duration of each profiled step, under the profiler
    #: time covered by the profiled steps and by work, the same for all devices; without steps, from the begin of the
    #: first work to the end of the last
    wall_ns: Count
    busy_ns: Count  #: time in which work ran, summed over all devices
    idle_ns: Count  #: the rest of the wall time, summed over all devices
    communication_ns: Count  #: time in which data moved between devices
    hidden_ns: Count  #: part of `communication_ns` in which the same device did other work
    outside_ns: Count  #: time outside any scope
    uncategorised_ns: Count  #: time of kernels without a category
    unmatched_ops: Count  #: executed instructions that no program of the trace contains
    unmatched_backward: Count  #: ops of the backward pass whose forward op is not in the trace
    unlaunched: Count  #: kernels and copies whose launch is not in the trace
    overlapping: Count  #: host rows that begin within another row and end after it
    #: missing executions: for each instruction, the shortfall of each run of its program compared with the run in which
    #: the instruction ran most often, summed
    uneven: Count
    devices: list[DeviceTime]  #: each device, and each of its streams or threads if it has several
    missing: list[str]  #: what should be in the trace but is not
    notes: list[str]  #: what was left out on purpose
    complete: bool  #: whether nothing is missing
    #: rank of the traced process in a distributed program, if the trace states it; null if the trace is of all ranks
    rank: Annotated[Count | None, NULL_IS_AN_ANSWER] = None
    #: number of ranks of the program, if the trace states it
    world_size: Annotated[Count | None, NULL_IS_AN_ANSWER] = None
    #: part of `communication_ns` in which a device only waited for another one to begin; null if it is not known
    waiting_ns: Annotated[Count | None, NULL_IS_AN_ANSWER] = None
    #: for each step, the device for which the others waited longest, by its place in `trace.devices`; empty if that is
    #: not known
    critical_ranks: list[Count] = []
    #: the collectives of a step by kind, the mean over steps and devices; empty for one device
    exchanges: list[Exchange] = []
    #: names of the devices, if they are known: what the profiler states, otherwise the record's device
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
