"""A score: two sides summarised over all cases, by metric, with a check that nothing requested is missing."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from msgspec import Struct, structs

from benchmarker.api.errors import UserError
from benchmarker.comparing import diagnosis
from benchmarker.comparing.geometric_mean import Mean
from benchmarker.comparing.judge import geometric_mean
from benchmarker.comparing.results import GeometricMean
from benchmarker.comparing.samples import Sample, Tested
from benchmarker.hooks import names
from benchmarker.hooks.metrics import cached
from benchmarker.procurement.costs import Basis, Costs, basis, cost_notes, with_costs
from benchmarker.procurement.weights import Weight, Weights
from benchmarker.records.configurations import Factors, Value, factors
from benchmarker.stats.verdict import holm

if TYPE_CHECKING:
    from benchmarker.comparing import matching
    from benchmarker.comparing.results import Rules
    from benchmarker.hooks.metrics import Derive
    from benchmarker.procurement.completeness import Unrun
    from benchmarker.procurement.sides import Sides
    from benchmarker.records.record import Failure, Record


class Side(Struct, frozen=True, kw_only=True):
    """One side's trials of all cases: how many were planned, how many succeeded, and what failed or was not run."""

    name: str
    asked: int
    ok: int
    success: float
    failed: list[str]
    unrun: list[str]


class CaseScore(Struct, frozen=True, kw_only=True):
    """One case in one metric: medians over trials, and the ratio, which is above 1 if the contender is better.

    `case` holds the factors that distinguish it, and `name` says them in words. `missing` holds, for each side, why
    some or all of its trials have no value.
    """

    case: dict[str, Value]
    name: str
    weight: float
    baseline_value: float | None
    contender_value: float | None
    ratio: float | None
    missing: list[str]


class MetricScore(Struct, frozen=True, kw_only=True):
    """The weighted geometric mean of the cases' ratios in one metric, above 1 if the contender is better.

    It covers `scored` of the `cases`. Cases of weight 0 are not counted; cases without a counterpart are. `better` is
    the better direction of the metric. `reason` explains why there is no mean.
    """

    metric: str
    unit: str
    better: Literal["higher", "lower"]
    scored: int
    cases: int
    mean: GeometricMean | None
    reason: str | None
    by_case: list[CaseScore]


class Score(Struct, frozen=True, kw_only=True):
    """Two sides, their success rates, their ratios by metric, and the basis of these.

    `shared` says in words what all cases have in common.
    `missing` counts what was requested and is not in the score, by kind. If it is empty, the score is complete.
    """

    baseline: Side
    contender: Side
    metrics: list[MetricScore]
    unmatched: list[str]
    notes: list[str]
    weights: list[Weight]
    currency: str | None
    costs: list[Basis]
    missing: dict[str, int]
    shared: str


def score(
    sides: Sides,
    metrics: Sequence[str],
    derive: Derive,
    *,
    weights: Weights,
    costs: Costs | None,
    required: Collection[str],
    rules: Rules,
) -> Score:
    """Score the sides in each metric; a case without a `required` metric makes the score incomplete.

    Raises `UserError` if a metric is unknown, or if the costs have no entry for a side.
    """
    derive = cached(derive)
    matches, unmatched = sides.made.matches, sides.made.unmatched
    records = [
        [record for each in several for record in each.records]
        for several in ([match.baseline for match in matches], [match.contender for match in matches])
    ]
    bases = []
    if costs:
        inputs = [costs.of(role, name) for role, name in zip(("baseline", "contender"), sides.names, strict=True)]
        bases = [basis(*each) for each in zip(sides.names, inputs, records, strict=True)]
        by_trial = {record.trial_id: own for own, several in zip(inputs, records, strict=True) for record in several}
        derive = with_costs(derive, by_trial, costs.currency)
    known = derive(records[0][0])
    if unknown := [name for name in metrics if name not in known]:
        raise UserError(f"no metric is named {unknown[0]!r}; there are: {', '.join(known)}")
    common = [_common(match) for match in matches]
    scored = _metrics(sides, metrics, [weights.of(each) for each in common], derive, rules)
    baseline, contender = (_side(*each) for each in zip(sides.names, records, sides.unrun, strict=True))
    missing = {
        "trial(s) failed": sum(record.error is not None for each in records for record in each),
        "trial(s) not run": sum(each.trials for several in (*sides.unrun, sides.astray) for each in several),
        "case(s) without a counterpart": len(unmatched),
        "weight(s) of no case": len(weights.unused(common)),
    }
    for each in scored:
        if each.metric in required:
            what = f"case(s) in which trials have no {each.metric}"
            missing[what] = sum(bool(case.missing) for case in each.by_case if case.weight)
            missing[f"score of {each.metric}"] = int(each.mean is None and not missing[what])
    return Score(
        baseline=baseline,
        contender=contender,
        metrics=scored,
        unmatched=list(unmatched),
        notes=[
            *sides.made.notes,
            *_notes(matches),
            *(cost_notes(records) if costs else []),
            *weights.unused(common),
        ],
        weights=list(weights.entries),
        currency=costs.currency if costs else None,
        costs=bases,
        missing={what: count for what, count in missing.items() if count},
        shared=sides.made.shared,
    )


def _common(match: matching.Match) -> Factors:
    """Return the factors of a case that both sides share."""
    one, two = (factors(side.records[0].case) for side in (match.baseline, match.contender))
    return {name: value for name, value in one.items() if name in two and two[name] == value}


def _metrics(
    sides: Sides, metrics: Sequence[str], weights: Sequence[float], derive: Derive, rules: Rules
) -> list[MetricScore]:
    """Score each metric; verdicts are corrected for the number of metrics (Holm)."""
    tested = {
        name: [Tested(match, replace(rules, metric=name), derive) for match in sides.made.matches] for name in metrics
    }
    weighed = {
        name: [(case, weight) for case, weight in zip(cases, weights, strict=True) if case.shift and weight]
        for name, cases in tested.items()
    }
    means = {name: Mean.of(*zip(*scored, strict=True)) for name, scored in weighed.items() if scored}
    different = holm([mean.p_different for mean in means.values()])
    same = holm([mean.p_same for mean in means.values()])
    judged = {
        name: geometric_mean([case for case, _ in weighed[name]], mean, *ps)
        for (name, mean), *ps in zip(means.items(), different, same, strict=True)
    }
    others = len(sides.made.unmatched)
    return [_metric(cases, weights, others, judged.get(name)) for name, cases in tested.items()]


def _metric(cases: Sequence[Tested], weights: Sequence[float], others: int, mean: GeometricMean | None) -> MetricScore:
    metric = next(each.metric for case in cases for each in (case.baseline, case.contender) if each.metric)
    turn = -1 if metric.better == "lower" else 1
    by_case = [_case(case, weight, turn) for case, weight in zip(cases, weights, strict=True)]
    counted = [each for each in by_case if each.weight]
    reasons = [reason for each in counted for reason in each.missing]
    return MetricScore(
        metric=cases[0].rules.metric,
        unit=metric.unit,
        better=metric.better,
        scored=sum(each.ratio is not None for each in counted),
        cases=len(counted) + others,
        mean=_turned(mean) if mean and turn < 0 else mean,
        reason=None if mean else reasons[0] if reasons else "every case has weight 0",
        by_case=by_case,
    )


def _turned(mean: GeometricMean) -> GeometricMean:
    """Return the mean of the inverse ratios."""
    low, high = (None if end is None else 1 / end for end in (mean.high, mean.low))
    return structs.replace(mean, ratio=1 / mean.ratio, low=low, high=high, better="higher")


def _case(case: Tested, weight: float, turn: int) -> CaseScore:
    return CaseScore(
        case=dict(case.match.case),
        name=case.match.name,
        weight=weight,
        baseline_value=case.baseline.median,
        contender_value=case.contender.median,
        ratio=math.exp(turn * case.shift.estimate) if case.shift else None,
        missing=[line for side in (case.baseline, case.contender) if (line := _lacking(side, case.rules.metric))],
    )


def _lacking(side: Sample, metric: str) -> str | None:
    """Return why some or all successful trials of a side have no value of a metric, or None."""
    if side.lacking:
        which = f"{len(side.lacking)} of {len(side.all)} trials have no" if side.trials else "no trial has a"
        return f"{side.name}: {which} {metric}: {side.lacking[0]}"
    return None if side.trials else f"{side.name}: no trial succeeded"


def _notes(matches: Sequence[matching.Match]) -> list[str]:
    """Describe differences between the sides' work, environments or energies, each with its number of cases."""
    notes: Counter[str] = Counter()
    for match in matches:
        both = match.baseline.records, match.contender.records
        notes.update({*diagnosis.differences(*both, "flop_per_s"), *diagnosis.energies(*both)})
    return [f"({count} of {len(matches)} cases) {note}" for note, count in notes.items()]


def _side(name: str, records: Sequence[Record], unrun: Sequence[Unrun]) -> Side:
    """Summarise one side from its records and its trials without a record."""
    failed: dict[tuple[str, str], list[Failure]] = {}
    for record in records:
        if record.error:
            failed.setdefault((names.name(factors(record.case)), record.error.kind), []).append(record.error)
    asked = len(records) + sum(each.trials for each in unrun)
    ok = sum(record.error is None for record in records)
    return Side(
        name=name,
        asked=asked,
        ok=ok,
        success=ok / asked,
        failed=[f"{case}: {len(errors)} x {kind}: {errors[0].message}" for (case, kind), errors in failed.items()],
        unrun=[f"{names.name(factors(each.case))}: {each.trials} of run {each.run_id}" for each in unrun],
    )
