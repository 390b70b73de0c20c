"""How long a plan should take: from earlier records of its cases, refined as it runs."""

from __future__ import annotations

from collections import defaultdict
from statistics import fmean
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from benchmarker.api import Case
    from benchmarker.plan import Plan
    from benchmarker.record import Record


class TimeLeft:
    """Mean time of a trial of each case so far; a case not yet seen takes the mean of the others."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._keys = [msgspec.json.encode(case) for case in plan.cases]
        self._seen: dict[bytes, list[float]] = defaultdict(list)

    def learn(self, records: Iterable[Record]) -> None:
        """Take in how long processes took; the two records of a duet share theirs."""
        for record in records:
            share = 2 if record.design.partner else 1
            self._seen[msgspec.json.encode(record.case)].append(record.harness.wall_s / share)

    def trial_s(self, index: int) -> float | None:
        """Seconds that a trial of a case should take; None while no case has been seen."""
        if seen := self._seen.get(self._keys[index]):
            return fmean(seen)
        return fmean(map(fmean, self._seen.values())) if self._seen else None

    def seconds(self, ran: int = 0) -> float | None:
        """Seconds for all but the first `ran` trials of the plan's order; None while no case has been seen."""
        if not self._seen:
            return None
        each = [self.trial_s(index) or 0.0 for index in range(len(self._keys))]
        return sum(each[index] for index, _ in self._plan.order[ran:])

    def knows(self, index: int) -> bool:
        """Whether the case itself has been seen."""
        return self._keys[index] in self._seen


def most_s(case: Case) -> float:
    """The longest that a trial can take by its own limits, beside starting, checking, building and compiling."""
    measuring = case.measuring
    return min(measuring.timeout_s, (measuring.preheat_max_s if measuring.preheat else 0.0) + measuring.seconds)


def duration_text(seconds: float) -> str:
    """A duration for people: `40 s`, `12 min`, `3 h 20 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
