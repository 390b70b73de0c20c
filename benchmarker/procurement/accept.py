"""Acceptance test: check measured cases against the bounds of a reference."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Literal

import msgspec
from msgspec import Struct

from benchmarker.api.case import Case
from benchmarker.api.errors import UserError
from benchmarker.comparing.disturbances import count
from benchmarker.formatting import count as several
from benchmarker.formatting import part
from benchmarker.hooks.metrics import Derive
from benchmarker.hooks.names import name as name_of
from benchmarker.hooks.names import names
from benchmarker.planning.cases import command_line
from benchmarker.procurement.completeness import MissingTrials
from benchmarker.procurement.reference import Wanted
from benchmarker.records.factors import Factors, changes, factors_of, selects, why_none
from benchmarker.records.record import Record
from benchmarker.stats.median_interval import median_interval


class CaseOutcome(Struct, frozen=True, kw_only=True):
    """Whether the median over a configuration's trials is within the bounds of a case, and why not.

    `low` and `high` are the 95% interval of the median; None for fewer than six trials. `near` states whether a bound
    is so near to the median that another run may be judged otherwise, and `doubts` say why the verdict is not certain.
    `configuration` is None if no record matches the case. `duration_s` is the total time of its trials.
    """

    verdict: Literal["PASS", "FAIL"]
    name: str
    configuration: dict[str, bool | int | float | str | None] | None
    metric: str | None
    unit: str
    value: float | None
    lowest: float | None
    highest: float | None
    low: float | None
    high: float | None
    trials: int
    min: float | None
    max: float | None
    reasons: list[str]
    near: bool
    doubts: list[str]
    command: str | None
    duration_s: float


class Acceptance(Struct, frozen=True, kw_only=True):
    """The outcome of every case, and the successful configurations that no case of the reference matches."""

    outcomes: list[CaseOutcome]
    unasked: list[str]


@dataclass(slots=True)
class _Measured:
    """The trials of one configuration on one host, and its trials without a record."""

    case: Case
    factors: Factors
    records: list[Record] = field(default_factory=list)
    unrun: list[MissingTrials] = field(default_factory=list)


def accept(
    wanted: Sequence[Wanted], records: Sequence[Record], unrun: Sequence[MissingTrials], derive: Derive
) -> Acceptance:
    """Judge every configuration that a case of the reference matches, and every failed one that no case matches.

    Raises `UserError` if a metric is unknown.
    """
    groups = _measured(records, unrun)
    known = derive(records[0]) if records else {}
    for case in wanted:
        if records and case.metric not in known:
            raise UserError(f"{case.name}: no metric is named {case.metric!r}; there are: {', '.join(known)}")
    of_group = {key: group.factors for key, group in groups.items()}
    matched = [[key for key, these in of_group.items() if selects(case.match, these)] for case in wanted]
    asked = {key for keys in matched for key in keys}
    outcomes = []
    for case, keys in zip(wanted, matched, strict=True):
        told = names([of_group[key] for key in keys]).each if keys else ()
        for key, more in zip(keys, told, strict=True):
            outcomes.append(_judged(case, f"{case.name} {more}".strip(), groups[key], derive))
        if not keys:
            free = [these for key, these in of_group.items() if key not in asked]
            why = _nearest(case.match, free) or why_none(case.match, of_group.values())
            outcomes.append(_outcome(case.name, case, reasons=[f"no record matches: {why}"]))
    unasked = []
    named = names([group.factors for group in groups.values()]).whole if groups else ()
    for name, (key, group) in zip(named, groups.items(), strict=True):
        if key in asked:
            continue
        if reasons := _unwell(group):
            outcomes.append(_outcome(f"not in the reference: {name}", group=group, reasons=reasons))
        else:
            unasked.append(name)
    return Acceptance(outcomes=outcomes, unasked=unasked)


def together(sides: Iterable[tuple[str, Acceptance]]) -> Acceptance:
    """Return the outcomes of several sides, each with the name of its side before it, if it has one."""
    outcomes, unasked = [], []
    for side, own in sides:
        prefix = f"{side}: " if side else ""
        outcomes += [msgspec.structs.replace(outcome, name=f"{prefix}{outcome.name}") for outcome in own.outcomes]
        unasked += [f"{prefix}{name}" for name in own.unasked]
    return Acceptance(outcomes=outcomes, unasked=unasked)


def _measured(records: Sequence[Record], unrun: Sequence[MissingTrials]) -> dict[tuple[bytes, str], _Measured]:
    """Group trials by configuration and host; trials without a record go to the host of the rest of their run."""
    hosts = {record.run_id: record.machine.host for record in records}
    groups: dict[tuple[bytes, str], _Measured] = {}

    def group(case: Case, host: str) -> _Measured:
        own = factors_of(case) | {"host": host}
        return groups.setdefault((msgspec.json.encode(factors_of(case)), host), _Measured(case, own))

    for record in {record.trial_id: record for record in records}.values():
        group(record.case, record.machine.host).records.append(record)
    for lacking in unrun:
        group(lacking.case, hosts.get(lacking.run_id, "unknown")).unrun.append(lacking)
    return groups


def _nearest(wanted: Factors, free: Sequence[Factors]) -> str | None:
    """Return how the most similar configuration of the same problem differs, of those that no case matches; or None."""
    same = [factors for factors in free if "problem" in wanted and factors["problem"] == wanted["problem"]]
    differing = [[name for name in wanted if factors.get(name) != wanted[name]] for factors in same]
    if not same or not wanted.keys() <= same[0].keys():
        return None
    nearest, differ = min(zip(same, differing, strict=True), key=lambda pair: len(pair[1]))
    return f"{name_of(nearest)} was measured instead: {', '.join(changes(wanted, nearest, differ))}"


def _unwell(group: _Measured) -> list[str]:
    """Describe failed trials and trials that were not run."""
    errors = [record.error for record in group.records if record.error]
    first = {error.kind: error for error in reversed(errors)}
    number = len(group.records)
    reasons = [
        f"{part(count, number, 'trial')} failed: {kind}: {first[kind].message}"
        for kind, count in Counter(error.kind for error in errors).items()
    ]
    return [
        *reasons,
        *(f"{several(lacking.trials, 'trial')} of run {lacking.run_id} not run" for lacking in group.unrun),
    ]


def _judged(wanted: Wanted, name: str, group: _Measured, derive: Derive) -> CaseOutcome:
    """Judge a configuration: it passes if every trial succeeded, there are enough, and the median is within bounds."""
    metrics = [derive(record)[wanted.metric] for record in group.records if record.error is None]
    values = [metric.value for metric in metrics if metric.value is not None]
    lacking = [metric.reason or "no reason is recorded" for metric in metrics if metric.value is None]
    reasons = _unwell(group)
    if len(metrics) < wanted.trials:
        reasons.append(f"{len(metrics)} of the {wanted.trials} required trials succeeded")
    if lacking:
        reasons.append(f"{part(len(lacking), len(metrics), 'trial', 'has', 'have')} no {wanted.metric}: {lacking[0]}")
    if values:
        reasons += _outside(median(values), wanted)
    return _outcome(name, wanted, group, reasons=reasons, unit=metrics[0].unit if metrics else "", values=values)


def _outside(value: float, wanted: Wanted) -> list[str]:
    """Describe by how much a value is out of bounds."""
    reasons = []
    for limit, word, beyond in ((wanted.low, "below", -1), (wanted.high, "above", 1)):
        if limit is not None and (value - limit) * beyond > 0:
            by = f"{abs(value / limit - 1):.2%}" if limit else f"{abs(value):.4g}"
            reasons.append(f"the median is {by} {word} {limit:.6g}")
    return reasons


def _near(values: Sequence[float], interval: tuple[float, float] | None, wanted: Wanted | None) -> list[str]:
    """Describe each bound that lies within the interval of the median, or within the range of a few trials."""
    if wanted is None or len(values) < 2:
        return []
    low, high = interval or (min(values), max(values))
    where = "the 95% interval of the median" if interval else f"the range of only {several(len(values), 'trial')}"
    return [
        f"the bound {limit:.6g} lies within {where}, {low:.6g} to {high:.6g}: "
        "borderline, another run may be judged otherwise; run more trials to decide"
        for limit in dict.fromkeys((wanted.low, wanted.high))
        if limit is not None and low < limit < high
    ]


def _outcome(
    name: str,
    wanted: Wanted | None = None,
    group: _Measured | None = None,
    *,
    reasons: list[str],
    unit: str = "",
    values: Sequence[float] = (),
) -> CaseOutcome:
    interval = median_interval(values)
    near = _near(values, interval, wanted)
    disturbed = count([group.records]) if group else None
    return CaseOutcome(
        verdict="FAIL" if reasons else "PASS",
        name=name,
        configuration=dict(group.factors) if group else None,
        metric=wanted.metric if wanted else None,
        unit=unit,
        value=median(values) if values else None,
        lowest=min(values, default=None),
        highest=max(values, default=None),
        low=interval[0] if interval else None,
        high=interval[1] if interval else None,
        trials=len(values),
        min=wanted.low if wanted else None,
        max=wanted.high if wanted else None,
        reasons=reasons,
        near=bool(near),
        doubts=[
            *near,
            *(["a single trial shows no scatter"] if wanted and len(values) == 1 else []),
            *([f"{disturbed}; {disturbed.advice}"] if disturbed and disturbed.number else []),
        ],
        command=_command(group.case, wanted) if group else None,
        duration_s=sum(record.harness.wall_s for record in group.records) if group else 0.0,
    )


def _command(case: Case, wanted: Wanted | None) -> str:
    """Return the command line that repeats a case with the required number of trials."""
    trials = f" --trials={wanted.trials}" if wanted and wanted.trials > 1 else ""
    return f"{command_line(case)}{trials}"
