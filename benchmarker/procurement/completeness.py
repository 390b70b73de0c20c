"""Find trials that were planned but have no record, because their run was interrupted."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarker.api.case import Case
from benchmarker.files.atomic import Fault
from benchmarker.records import store
from benchmarker.records.plan import Plan
from benchmarker.records.record import Record

REMEDY = "repeat the run's command with --resume (under pytest, run the tests again)"
"""How trials that are missing are measured."""


@dataclass(frozen=True, slots=True)
class MissingTrials:
    """A case of a run, and the number of its planned trials without a record."""

    run_id: str
    case: Case
    trials: int


@dataclass(frozen=True, slots=True)
class Completeness:
    """What the plans of results ask for: trials without a record, cases left out with the reason, and faults."""

    missing: tuple[MissingTrials, ...]
    left_out: tuple[str, ...]
    faults: tuple[Fault, ...]


def completeness_of(results: Iterable[Path], records: Sequence[Record]) -> Completeness:
    """Compare the plans of the runs at `results` with their records; a result that is a single record has no plan."""
    runs: dict[str, dict[str, Record]] = {}
    for record in records:
        runs.setdefault(record.run_id, {})[record.trial_id] = record
    unrun: dict[tuple[str, bytes], MissingTrials] = {}
    left_out: dict[str, None] = {}
    faults = []
    plans = {file: plan for result in results if result.is_dir() for file, plan in store.plans_of(result)}
    for file, plan in plans.items():
        if isinstance(plan, Fault):
            faults.append(plan)
            continue
        left_out |= dict.fromkeys(plan.left_out)
        of_run = runs.get(plan.run_id, {}).values()
        kept = [record for record in of_run if not store.is_cut(record)]
        cases = {msgspec.json.encode(case) for case in plan.cases}
        faults += [
            Fault(file.parent / f"{record.trial_id}.json", f"not a trial of {file}")
            for record in of_run
            if msgspec.json.encode(record.case) not in cases
            or record.trial >= plan.trials
            or record.design.session != plan.session_of(record.trial)
        ]
        unrun |= {(lacking.run_id, msgspec.json.encode(lacking.case)): lacking for lacking in _missing(plan, kept)}
    return Completeness(tuple(unrun.values()), tuple(left_out), tuple(faults))


def _missing(plan: Plan, records: Collection[Record]) -> list[MissingTrials]:
    """Return missing trials by case, in plan order; a run that may end early needs no rounds after its last one."""
    last = max((record.trial for record in records), default=0) if plan.looks else plan.trials
    wanted = Counter(msgspec.json.encode(plan.cases[index]) for index, trial in plan.order if trial <= last)
    had = Counter(msgspec.json.encode(record.case) for record in records)
    cases = {msgspec.json.encode(case): case for case in plan.cases}
    lacking = wanted - had
    return [MissingTrials(plan.run_id, case, lacking[key]) for key, case in cases.items() if lacking[key]]
