"""What a difference of step times is made of: the scopes, or kinds of kernels, that account for most of it."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from benchmarker.formatting import shortened, si
from benchmarker.records.profile import Trace
from benchmarker.records.record import Record
from benchmarker.records.sides import Side
from benchmarker.records.step_times import step_times

MOST = 0.5
"""Share of the difference that the named parts account for together; less explains nothing."""
MOST_NAMED = 3
ALL = 1.005
"""Share above which the named parts account for more than the difference; up to it, they are written as 100%."""
SCOPED = 0.5
"""Least share of the busy time of both sides in scopes; with less, parts are kinds of kernels."""
WIDEST_KERNEL = 80
_SIGNATURE = re.compile(r"^void |\([^()]*\)$")
"""What the name of a C++ kernel has besides: its result, and its arguments."""
RESOLUTION_S = 1e-9
"""Resolution of the clocks of profilers."""
IDLE = "idle time"
"""The step time that is no busy time."""

Key = tuple[str, str]
"""A scope and its phase, or a category of kernels and an empty text."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a step, the time per step, s, that it takes on each side, and the kernel that takes most of it."""

    name: str
    baseline_s: float
    contender_s: float
    kernels: tuple[str, str] = ("", "")

    @property
    def change_s(self) -> float:
        """By how much longer it takes on the contender, s."""
        return self.contender_s - self.baseline_s


@dataclass(frozen=True, slots=True)
class Explanation:
    """By how much longer the step of the contender is, s, and the parts, the one with the largest share first.

    The changes of the parts add up to `explained_s`. That is the whole difference, unless the busy time of a side under
    the profiler is longer than its step without it: then it is the difference of the busy times alone.
    """

    baseline: str
    contender: str
    step_s: float
    explained_s: float
    parts: tuple[Part, ...]

    def share(self, *parts: Part) -> float:
        """Return the share of the explained difference that some parts account for; it is below 0 if they reduce it."""
        return sum(part.change_s for part in parts) / self.explained_s

    @property
    def leading(self) -> tuple[Part, ...]:
        """The fewest parts that account for most of the difference, at most MOST_NAMED; none if these do not."""
        if self.explained_s * self.step_s <= 0:
            return ()
        for number in range(1, MOST_NAMED + 1):
            if self.share(*self.parts[:number]) >= MOST:
                return self.parts[:number]
        return ()

    def __str__(self) -> str:
        """Return it as a sentence without a full stop."""
        by_step = f"the difference of {si(abs(self.step_s), 's')} between the step times"
        if self.explained_s * self.step_s <= 0:
            return f"the profiles do not account for {by_step}: busy times under the profiler do not differ in that way"
        of = by_step
        if self.explained_s != self.step_s:
            of = f"the difference of {si(abs(self.explained_s), 's')} between the busy times under the profiler"
        leading = self.leading
        if not leading:
            largest = self.parts[0]
            return f"{of} is in many parts: the largest share, {self._share(largest)}, is in {self._sides(largest)}"
        share = f"{self._share(*leading)} of {of} is in "
        if self.share(*leading) > ALL:
            share = f"more than {of} ({self._share(*leading)}, which other parts reduce) is in "
        if len(leading) == 1:
            return f"{share}{leading[0].name}: {self._sides(*leading, named=False)}"
        return f"{share}{len(leading)} parts: {'; '.join(map(self._sides, leading))}"

    def _share(self, *parts: Part) -> str:
        return f"{self.share(*parts):.0%}"

    def _sides(self, part: Part, *, named: bool = True) -> str:
        """Return the time of a part on both sides, each with its longest kernel: `lm_head, 2 ms in a and 1 ms in b`."""
        sides = (self.baseline, part.baseline_s, part.kernels[0]), (self.contender, part.contender_s, part.kernels[1])
        times = " and ".join(
            f"{si(time_s, 's')} in {side}" + (f" (mainly {shortened(kernel, WIDEST_KERNEL)})" if kernel else "")
            for side, time_s, kernel in sides
        )
        return f"{part.name}, {times}" if named else times


def explanation(baseline: Side, contender: Side, names: tuple[str, str], least: float) -> Explanation | None:
    """Return what the difference between the median step times of two sides is made of.

    `names` are how the sides are called. None without a profile of both sides, and if the step times differ by no more
    than the share `least`. Times are medians over the trials of a side; those of parts are per step and device, the
    median over the profiled steps of a trial.
    """
    one, two = (_profiled(side.records) for side in (baseline, contender))
    if not one or not two:
        return None
    steps = _step_s(baseline.records), _step_s(contender.records)
    if not all(steps) or max(steps) <= (1 + least) * min(steps):
        return None
    by_scope = min(map(_scoped, (one, two))) >= SCOPED
    a, b = (_times(records, by_scope=by_scope) for records in (one, two))
    parts = [
        Part(
            _name(key, by_scope=by_scope),
            a.get(key, 0.0),
            b.get(key, 0.0),
            (_longest(one, key, by_scope=by_scope), _longest(two, key, by_scope=by_scope)),
        )
        for key in dict.fromkeys([*a, *b])
    ]
    idle_s = steps[0] - sum(a.values()), steps[1] - sum(b.values())
    difference_s = explained_s = steps[1] - steps[0]
    if min(idle_s) > -RESOLUTION_S:
        parts.append(Part(IDLE, *idle_s))
    else:
        explained_s = sum(part.change_s for part in parts)
    parts.sort(key=lambda part: -part.change_s * explained_s)
    return Explanation(*names, difference_s, explained_s, tuple(parts))


def _profiled(records: Sequence[Record]) -> list[tuple[Record, Trace]]:
    return [(record, record.trace) for record in records if record.trace and record.trace.steps and not record.error]


def _step_s(records: Sequence[Record]) -> float:
    """Return the median over trials of the median step time, s; 0 without one."""
    medians = [float(np.median(step_times(record))) for record in records if record.blocks and not record.error]
    return median(medians) if medians else 0.0


def _scoped(records: Sequence[tuple[Record, Trace]]) -> float:
    """Return the share of the busy time that is in a scope, the least of all trials."""
    return min(
        sum(scope.root_ns for scope in record.scopes if scope.scope) / max(1, trace.busy_ns)
        for record, trace in records
    )


def _times(records: Sequence[tuple[Record, Trace]], *, by_scope: bool) -> dict[Key, float]:
    """Return the time of each part per step and device, s: the median over trials."""
    each = [_scope_s(*one) if by_scope else _kernel_s(*one) for one in records]
    keys = dict.fromkeys(key for times in each for key in times)
    return {key: median(times.get(key, 0.0) for times in each) for key in keys}


def _scope_s(record: Record, trace: Trace) -> dict[Key, float]:
    unit = 1e9 * _devices(trace)
    return {
        (each.scope, each.phase): median(each.step_ns) / unit for each in record.scopes if each.root_ns and each.step_ns
    }


def _kernel_s(record: Record, trace: Trace) -> dict[Key, float]:
    times: Counter[Key] = Counter()
    for kernel in record.kernels:
        times[kernel.category, ""] += kernel.busy_ns
    times[_UNLISTED] = max(0, trace.busy_ns - times.total())
    unit = 1e9 * _devices(trace) * trace.steps
    return {key: time_ns / unit for key, time_ns in times.items()}


_UNLISTED = "short kernels", ""


def _devices(trace: Trace) -> int:
    return sum(not each.track for each in trace.devices) or 1


def _name(key: Key, *, by_scope: bool) -> str:
    name, phase = key
    if by_scope:
        return " ".join(filter(None, [name or "work outside any scope", phase if phase != "forward" else ""]))
    return name if key == _UNLISTED else f"{name} kernels" if name else "kernels without a category"


def _longest(records: Sequence[tuple[Record, Trace]], key: Key, *, by_scope: bool) -> str:
    """Return the kernel that takes the most time of a part in the first profile; empty if none is listed."""
    times: Counter[str] = Counter()
    for kernel in records[0][0].kernels:
        if ((kernel.scope, kernel.phase) if by_scope else (kernel.category, "")) == key:
            times[kernel.name] += kernel.busy_ns
    return _SIGNATURE.sub("", times.most_common(1)[0][0]) if times else ""
