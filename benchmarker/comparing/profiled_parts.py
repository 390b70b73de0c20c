"""Turn the scopes and kernels of profiled trials into matches, so that they are compared like whole trials."""

from collections.abc import Mapping, Sequence
from statistics import median

import msgspec
import numpy as np

from benchmarker.api.errors import UserError
from benchmarker.api.metric import Metric
from benchmarker.comparing.matching import Match, Matching
from benchmarker.comparing.results import PROFILED, Level
from benchmarker.formatting import count
from benchmarker.hooks.metrics import Derive
from benchmarker.records.factors import Value, label
from benchmarker.records.profile import Kernel, Scope
from benchmarker.records.record import Record
from benchmarker.records.sides import Side

Line = Scope | Kernel
Part = tuple[str, ...]
"""A scope and its phase, or a kernel's name with both: the values of `AXES`."""

AXES: dict[Level, Part] = {"scope": ("scope", "phase"), "kernel": ("kernel", "scope", "phase")}
LEAST_SHARE = 0.01
"""Least share of the busy time, on either side, of a part that is compared.

With more parts, Holm's correction would need more rounds than a run usually has.
"""
OUTSIDE = "(outside any)"
PROFILER = (
    "times were measured under the profiler, in a separate process after each trial; its disturbances are not recorded"
)


def split(made: Matching, level: Level) -> Matching:
    """Split matches into parts, longest first; parts without a counterpart are listed with their share of busy time.

    The records of a part contain only that part in `scopes` or `kernels`. Raises `UserError` if no trial has a profile
    or if no part can be compared.
    """
    pairs = [_Pair(match, level) for match in made.matches]
    profiled = [pair for pair in pairs if not pair.lacking]
    if not profiled:
        side = pairs[0].lacking[0]
        raise UserError(f"--level={level}: no trial of {side.name} has a profile ({side.reason}); run with --profile")
    matches = [match for pair in profiled for match in pair.matches()]
    if not matches:
        remedy = (
            "`profile scopes` lists those of each side" if level == "scope" else "compare scopes with --level=scope"
        )
        raise UserError(f"--level={level}: no {level} has a counterpart on the other side; {remedy}")
    return Matching(
        tuple(matches),
        (*made.unmatched, *(text for pair in pairs for text in pair.unmatched())),
        (PROFILER, *(text for pair in profiled for text in pair.left_out())),
        made.shared,
    )


def part_metrics(level: Level) -> Derive:
    """Return the metric of records with one part: the time per step of a scope, or per execution of a kernel."""

    def derive(record: Record) -> Mapping[str, Metric]:
        reason = record.reasons["trace"] if record.trace is None else "it is not in its profile"
        time_ns = _scope_ns(record.scopes) if level == "scope" else _kernel_ns(record.kernels)
        value = None if time_ns is None else time_ns / 1e9
        return {PROFILED[level]: Metric(value, "s", "lower", reason if value is None else None)}

    return derive


def _scope_ns(scopes: Sequence[Scope]) -> float | None:
    """Return the median over steps of the time per step."""
    steps = [time for scope in scopes for time in scope.step_ns]
    return median(steps) if steps else None


def _kernel_ns(kernels: Sequence[Kernel]) -> float | None:
    """Return the median over executions; if instructions share a kernel name, the weighted mean of their medians."""
    if not kernels:
        return None
    return float(np.average([kernel.median_ns for kernel in kernels], weights=[kernel.count for kernel in kernels]))


class _Side:
    """One side by parts: `ran` holds those that took time in any trial, `fused` those with a share in any kernel."""

    def __init__(self, side: Side, level: Level) -> None:
        self.name = side.name
        self.level = level
        self.records = side.records
        self.reason = next((record.reasons["trace"] for record in side.records if record.trace is None), "")
        self.parts = [_parts(record, level) for record in side.records]
        self.shares = [
            {part: sum(map(_busy_ns, lines)) / max(1, record.trace.busy_ns) for part, lines in parts.items()}
            for record, parts in zip(side.records, self.parts, strict=True)
            if record.trace
        ]
        self.ran = {part for shares in self.shares for part, share in shares.items() if share}
        lines = [(part, line) for parts in self.parts for part, of_part in parts.items() for line in of_part]
        self.fused = {part for part, line in lines if isinstance(line, Scope) and line.any_ns}

    def share(self, *parts: Part) -> float:
        """Return the share of the busy time that these parts take together: the median over profiled trials."""
        return median(sum(shares.get(part, 0.0) for part in parts) for shares in self.shares)

    def only(self, part: Part) -> Side:
        """Return the side with only this part in its records."""
        none: dict[str, list[Line]] = {"scopes": [], "kernels": []}
        records = [
            msgspec.structs.replace(record, **none | {f"{self.level}s": parts.get(part, [])})
            for record, parts in zip(self.records, self.parts, strict=True)
        ]
        return Side(self.name, tuple(records))


class _Pair:
    """A match by parts: `chosen` take enough of the busy time on a side; `lacking` are the sides without a profile."""

    def __init__(self, match: Match, level: Level) -> None:
        self.case = match.case
        self.name = match.name
        self.where = f"{match.name} ".lstrip()
        self.level = level
        self.sides = one, two = _Side(match.baseline, level), _Side(match.contender, level)
        self.lacking = [side for side in self.sides if not side.shares]
        largest = {} if self.lacking else {part: max(one.share(part), two.share(part)) for part in one.ran | two.ran}
        self.chosen = sorted(
            (part for part in largest if largest[part] >= LEAST_SHARE), key=lambda part: (-largest[part], part)
        )
        self.left = len(largest) - len(self.chosen)

    def matches(self) -> list[Match]:
        """Return a match for each part that both sides have."""
        one, two = self.sides
        return [
            Match({**self.case, **self._axes(part)}, one.only(part), two.only(part), self.name)
            for part in self.chosen
            if part in one.ran & two.ran
        ]

    def unmatched(self) -> list[str]:
        """Describe parts that only one side has, and sides without a profile."""
        lines = [f"{self.where}{side.name}: no trial has a profile ({side.reason})" for side in self.lacking]
        none = "is not listed" if self.level == "kernel" else "does not occur"  # records list only the longest kernels
        for part in self.chosen:
            for side, other in (self.sides, self.sides[::-1]):
                if part not in other.ran:
                    name = label(self._axes(part), AXES[self.level])
                    there = "is fused with other scopes" if part in other.fused else none
                    share = f"{side.share(part):.1%} of its busy time"
                    lines.append(f"{self.where}{side.name}: {name} ({share}); in {other.name} it {there}")
        return lines

    def left_out(self) -> list[str]:
        """Report how many parts were not chosen, and their share of the busy time."""
        if not self.left and self.level != "kernel":
            return []
        rest = ", ".join(f"{max(0.0, 1 - side.share(*self.chosen)):.1%} in {side.name}" for side in self.sides)
        number = count(self.left, self.level)
        unlisted = " and those not listed in records" if self.level == "kernel" else ""
        few = f"less than {LEAST_SHARE:.0%} of the busy time on both sides"
        where = f"of {self.where}" if self.where else ""
        return [f"left out {where}for taking {few}: {number}{unlisted} ({rest})"]

    def _axes(self, part: Part) -> dict[str, Value]:
        return dict(zip(AXES[self.level], part, strict=True))


def _parts(record: Record, level: Level) -> dict[Part, list[Line]]:
    """Return the record's scopes or kernels by part."""
    parts: dict[Part, list[Line]] = {}
    lines: Sequence[Line] = record.scopes if level == "scope" else record.kernels
    for line in lines:
        place = (line.scope or OUTSIDE, line.phase or "-")
        parts.setdefault((line.name, *place) if isinstance(line, Kernel) else place, []).append(line)
    return parts


def _busy_ns(line: Line) -> int:
    return line.root_ns if isinstance(line, Scope) else line.busy_ns
