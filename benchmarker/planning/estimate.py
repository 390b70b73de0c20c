"""How long a plan should take, from earlier records or probes of its cases; refined as the plan runs."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from statistics import fmean, median
from typing import TYPE_CHECKING

import msgspec

from benchmarker.api.case import Measuring
from benchmarker.worker.timing import WINDOW_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from benchmarker.api.case import Case
    from benchmarker.records.plan import Plan
    from benchmarker.records.record import Record


class TimeLeft:
    """Mean time of a trial of each case so far; for a case not yet seen, the mean of the others."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._keys = [msgspec.json.encode(case) for case in plan.cases]
        self._seen: dict[bytes, list[float]] = defaultdict(list)

    def learn(self, records: Iterable[Record]) -> None:
        """Add how long processes took; the two records of a duet share the time if the plan is also of duets."""
        for record in records:
            share = 2 if record.design.partner and self._plan.design == "duet" else 1
            self._seen[msgspec.json.encode(record.case)].append(record.harness.wall_s / share)

    def expect(self, index: int, seconds: float) -> None:
        """Add how long a trial of a case should take."""
        self._seen[self._keys[index]].append(seconds)

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


@dataclass(frozen=True, slots=True)
class Forecast:
    """How long a plan should take: the `known` cases (by records or probes) `seconds`, the others at most `at_most_s`.

    A probe does not show when a preheat will end: `preheat_more_s` is the most that preheats of probed cases can add.
    """

    seconds: float | None
    known: int
    records: int
    probes: int
    preheat_more_s: float
    at_most_s: float
    unknown: int


def forecast(plan: Plan, records: Sequence[Record], probes: Mapping[int, Record]) -> Forecast:
    """Forecast from earlier records of the plan's cases, and from probes of other cases."""
    left = TimeLeft(plan)
    left.learn(records)
    for index, record in probes.items():
        left.expect(index, probed_s(plan.cases[index], record))
    known = [index for index in range(len(plan.cases)) if left.knows(index)]
    unknown = [case for index, case in enumerate(plan.cases) if not left.knows(index)]
    return Forecast(
        seconds=plan.trials * sum(left.trial_s(index) or 0.0 for index in known) if known else None,
        known=len(known),
        records=len(records),
        probes=len(probes),
        preheat_more_s=plan.trials * sum(_preheat_s(plan.cases[index])[1] for index in probes),
        at_most_s=plan.trials * sum(map(most_s, unknown)),
        unknown=len(unknown),
    )


def of_plan(plan: Plan, records: Iterable[Record]) -> list[Record]:
    """The records of the plan's cases whose trials did not fail."""
    keys = {msgspec.json.encode(case) for case in plan.cases}
    return [record for record in records if record.error is None and msgspec.json.encode(record.case) in keys]


def probe(case: Case) -> Case:
    """The case with the shortest measurement that shows how long it takes."""
    measuring = Measuring(warmup_steps=1, blocks=3, seconds=5.0, timeout_s=case.measuring.timeout_s, power="none")
    return msgspec.structs.replace(case, measuring=measuring)


def probed_s(case: Case, record: Record) -> float:
    """Seconds that a trial should take, from a record of its probe and with the shortest possible preheat."""
    assert record.blocks is not None
    measuring = case.measuring
    timed_s = min(measuring.seconds, measuring.blocks * median(record.blocks.duration_ns) / 1e9)
    timed_s = max(timed_s, _for_power_s(case))
    return record.harness.wall_s + timed_s + _preheat_s(case)[0]


def _preheat_s(case: Case) -> tuple[float, float]:
    """The shortest preheat (two windows), and how much longer it can take, both in s."""
    measuring = case.measuring
    least = min(measuring.preheat_max_s, 2 * WINDOW_S)
    return (least, measuring.preheat_max_s - least) if measuring.preheat else (0.0, 0.0)


def _for_power_s(case: Case) -> float:
    """Minimum timing for an energy figure, in s, assuming that there is a sensor."""
    return case.measuring.power_min_s if case.measuring.wants_power else 0.0


def most_s(case: Case) -> float:
    """Most seconds that a trial can take by its own limits, without start, check, build and compilation."""
    measuring = case.measuring
    preheat_s = measuring.preheat_max_s if measuring.preheat else 0.0
    return min(measuring.timeout_s, preheat_s + max(measuring.seconds, _for_power_s(case)))
