"""How long a plan should take, from earlier records or probes of its cases; refined as the plan runs."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean, median

import msgspec

from benchmarker.api.case import Case, Measuring
from benchmarker.records.plan import Plan
from benchmarker.records.record import Record
from benchmarker.worker.timing import WINDOW_S

ASSUMED_S = 10.0
ASSUMED = f"{ASSUMED_S:g} s a trial, as of GPT-2 small on two CPU cores"
"""Seconds outside preheat and timing, assumed if no record of the problem, framework and mode tells them.

Measured with `startup.py`: benchmarks/README.md.
"""


class TimeLeft:
    """Mean time of a trial of each case so far; for a case not yet seen, the mean of the others."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._keys = [msgspec.json.encode(case) for case in plan.cases]
        self._seen: dict[bytes, list[float]] = defaultdict(list)

    def learn(self, records: Iterable[Record]) -> None:
        """Add how long trials took; the two of a duet share the time but for profiles if the plan is also of duets."""
        for record in records:
            share = 2 if record.design.partner and self._plan.design == "duet" else 1
            profile_s = record.harness.stages_s.get("profile", 0.0)
            shared_s = (record.harness.wall_s - profile_s) / share
            self._seen[msgspec.json.encode(record.case)].append(shared_s + profile_s)

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
        return sum(each[index] for index, _ in self._plan.order[ran:]) + self._plan.pauses_s(ran)

    def knows(self, index: int) -> bool:
        """Whether the case itself has been seen."""
        return self._keys[index] in self._seen


@dataclass(frozen=True, slots=True)
class Forecast:
    """How long a plan should take, in s: `seconds` for the `known` cases, and two parts for the `unknown` ones.

    Cases are known by earlier records of the same work, or by probes. These do not show when a preheat will end:
    `preheat_more_s` is the most that preheats can add. The unknown cases take at most `at_most_s` for preheat and
    timing, by their own limits, and about `overhead_s` for all else: start-up, check, build, compilation, profile. That
    is from `overhead_records` records of the same problem, framework and mode; for `assumed` cases there are none.
    """

    seconds: float | None
    known: int
    records: int
    probes: int
    preheat_more_s: float
    unknown: int
    at_most_s: float
    overhead_s: float
    overhead_records: int
    assumed: int


def forecast(plan: Plan, records: Iterable[Record], probes: Mapping[int, Record]) -> Forecast:
    """Forecast from earlier records, and from probes of cases by their index; failed trials tell nothing.

    A case with records of its own takes their mean time. A case that was probed, or measured for another time, takes
    what the newest such record took outside its timed part, and the time of its own blocks.
    """
    good = [record for record in records if record.error is None]
    keys = {msgspec.json.encode(case) for case in plan.cases}
    exact = [record for record in good if msgspec.json.encode(record.case) in keys]
    left = TimeLeft(plan)
    left.learn(exact)
    alone = [record for record in good if record.design.partner is None]  # the cases of a duet share their process
    newest = {_work(record.case): record for record in alone}
    alike: dict[tuple[str, ...], list[Record]] = defaultdict(list)
    for record in alone:
        alike[_kind(record.case)].append(record)
    used, known, assumed = len(exact), 0, 0
    bases: set[str] = set()
    preheat_more_s = at_most_s = overhead_s = 0.0
    for index, case in enumerate(plan.cases):
        like = alike[_kind(case)]
        same = probes.get(index) or newest.get(_work(case))
        if left.knows(index):
            known += 1
        elif same:
            known, used = known + 1, used + (index not in probes)
            left.expect(index, expected_s(case, same, like))
            preheat_more_s += _preheat_s(case)[1]
        else:
            at_most_s += most_s(case)
            outside = median(map(outside_s, like)) if like else ASSUMED_S
            overhead_s += outside + _profile_s(case, like, outside)
            assumed += not like
            bases.update(record.trial_id for record in like)
    return Forecast(
        seconds=plan.trials * sum(left.trial_s(index) or 0.0 for index in range(len(plan.cases)) if left.knows(index))
        if known
        else None,
        known=known,
        records=used,
        probes=len(probes),
        preheat_more_s=plan.trials * preheat_more_s,
        unknown=len(plan.cases) - known,
        at_most_s=plan.trials * at_most_s,
        overhead_s=plan.trials * overhead_s,
        overhead_records=len(bases),
        assumed=assumed,
    )


def unmeasured(plan: Plan, records: Iterable[Record]) -> list[int]:
    """The indices of the plan's cases that `forecast` does not know by records."""
    good = [record for record in records if record.error is None]
    exact = {msgspec.json.encode(record.case) for record in good}
    done = {_work(record.case) for record in good if record.design.partner is None}
    return [
        index
        for index, case in enumerate(plan.cases)
        if msgspec.json.encode(case) not in exact and _work(case) not in done
    ]


def probe(case: Case) -> Case:
    """The case with the shortest measurement that shows how long it takes."""
    timeout_s, cache = case.measuring.timeout_s, case.measuring.cache
    short = Measuring(warmup_steps=1, blocks=3, seconds=5.0, timeout_s=timeout_s, cache=cache, power="none")
    return msgspec.structs.replace(case, measuring=short)


def expected_s(case: Case, record: Record, like: Iterable[Record] = ()) -> float:
    """Seconds that a trial should take, from a record of the same work, with the shortest possible preheat.

    `like` are records of the same problem, framework and mode, which tell what a profile takes.
    """
    if record.blocks is None:  # its format is emulated
        return outside_s(record)
    measuring = case.measuring
    block_s = median(record.blocks.duration_ns) / 1e9
    timed_s = max(min(measuring.seconds, measuring.blocks * block_s), _for_power_s(case))
    steps_s = measuring.profile_steps * block_s / record.blocks.steps_per_block
    outside = outside_s(record)
    rest_s = measuring.power_idle_s if measuring.wants_power else 0.0
    return rest_s + outside + _preheat_s(case)[0] + timed_s + _profile_s(case, like, outside + steps_s)


def outside_s(record: Record) -> float:
    """Seconds of a trial outside its rest, preheat, timed blocks and profile: start-up, check, build, compilation, end.

    A warm-up of a fixed number of steps is part of them.
    """
    stages = record.harness.stages_s
    apart = ("rest", "timed", "profile", *(["preheat"] if record.case.measuring.preheat else []))
    return max(0.0, record.harness.wall_s - sum(stages.get(name, 0.0) for name in apart))


def _profile_s(case: Case, like: Iterable[Record], otherwise: float) -> float:
    """Seconds of a profile: the median of earlier ones, or `otherwise`, as it starts, builds and compiles once more."""
    if case.measuring.profiling == "no":
        return 0.0
    earlier = [record.harness.stages_s["profile"] for record in like if "profile" in record.harness.stages_s]
    return median(earlier) if earlier else otherwise


def _kind(case: Case) -> tuple[str, ...]:
    return case.problem, case.framework, case.mode, case.device


def _work(case: Case) -> bytes:
    """What identifies a case except how it is measured."""
    return msgspec.json.encode(msgspec.structs.replace(case, measuring=Measuring()))


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
