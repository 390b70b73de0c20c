"""Scores: sides summarised over all cases, by metric, with a check that nothing requested is missing, and ranked."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from msgspec import Struct, structs

from benchmarker.api.metric import Metric
from benchmarker.comparing import diagnosis, matching
from benchmarker.comparing.disturbances import count
from benchmarker.comparing.formatting import Terms, words_of
from benchmarker.comparing.judge import geometric_means
from benchmarker.comparing.notes import suite_notes, suites_of
from benchmarker.comparing.results import DELTAS, GeometricMean, Rules
from benchmarker.comparing.samples import Mean, Sample, Tested
from benchmarker.formatting import count as many
from benchmarker.hooks import names
from benchmarker.hooks.metrics import Derive, cached, refuse_unknown
from benchmarker.procurement.completeness import MissingTrials
from benchmarker.procurement.costs import Basis, Costs, Inputs, basis, cost_notes, with_costs
from benchmarker.procurement.ranking import MetricRanking, rank
from benchmarker.procurement.sides import Pair, Sides, advice
from benchmarker.procurement.weights import Weight, Weights
from benchmarker.records.factors import DEFAULTS, Factors, Value, changes, factors_of
from benchmarker.records.record import Failure, Record
from benchmarker.records.suite import PlannedSuite, SuiteId

THROUGHPUT = "samples_per_s"
"""The metric that every case must have unless others are named."""


def default_metrics(known: Mapping[str, Metric]) -> list[str]:
    """Return the metrics that are scored unless others are named, the throughput first."""
    return [THROUGHPUT, *(name for name, metric in known.items() if metric.scored and name != THROUGHPUT)]


class ScoredSide(Struct, frozen=True, kw_only=True):
    """One side's trials of all its cases: their suites, how many were planned and succeeded, and what is missing.

    `warnings` holds what makes the cases that are scored doubtful, by kind: `disturbed` trials, trials too `short` to
    detect disturbances, `skewed` step times, a part of the machine's `cores`, and `mixed` trials of a case.
    """

    name: str
    suites: list[SuiteId]
    asked: int
    ok: int
    success: float
    disturbed: int
    failed: list[str]
    unrun: list[str]
    warnings: dict[str, str]


class CaseScore(Struct, frozen=True, kw_only=True):
    """One case in one metric: medians over trials, and the ratio, which is above 1 if the contender is better.

    `low` and `high` are the ends of its interval, or null if there are too few trials for one. `case` holds the factors
    that distinguish it, and `name` says them in words. `missing` holds, for each side, why some or all of its trials
    have no value.
    """

    case: dict[str, Value]
    name: str
    weight: float
    baseline_value: float | None
    contender_value: float | None
    ratio: float | None
    low: float | None
    high: float | None
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
    """Two sides, their success rates, and their ratios by metric.

    `missing` counts what was requested and is not in the score, by kind. If it is empty, the score is complete.
    `shared` says in words what all cases have in common.
    """

    baseline: ScoredSide
    contender: ScoredSide
    metrics: list[MetricScore]
    unmatched: list[str]
    notes: list[str]
    missing: dict[str, int]
    shared: str


class Scores(Struct, frozen=True, kw_only=True):
    """All sides, the baseline first; their order in each metric; and the score of each other side over the baseline.

    `costs` holds the basis of each side, if there are costs. `missing` counts what is missing in any score.
    """

    sides: list[ScoredSide]
    rankings: list[MetricRanking]
    scores: list[Score]
    weights: list[Weight]
    currency: str | None
    costs: list[Basis]
    missing: dict[str, int]

    @property
    def lacking(self) -> str:
        """What is missing, in words: `2 trials failed, 1 case without a counterpart`; empty if nothing is."""
        return ", ".join(many(number, what.replace("s ", " ", 1), what) for what, number in self.missing.items())


def terms_of(metric: MetricScore) -> Terms:
    """Return the terms of a score, which is above 1 where the contender is better."""
    return Terms(metric.metric, words_of(metric.unit), DELTAS["trial"])


def coverage(metrics: Sequence[MetricScore], scores: Scores) -> str:
    """Return how many cases a score covers, at the least of these, and whether anything is missing in it."""
    least = min(metrics, key=lambda metric: metric.scored)
    return f"{least.scored} of {many(least.cases, 'case')}{', INCOMPLETE' if scores.missing else ''}"


@dataclass(frozen=True, slots=True)
class _Judged:
    """Two sides in one metric: their cases, which have a test each, with weights, and the mean above 1 if better."""

    cases: list[Tested]
    weights: list[float]
    mean: GeometricMean | None


def score(
    sides: Sides,
    metrics: Sequence[str],
    derive: Derive,
    *,
    weights: Weights,
    costs: Costs | None,
    required: Collection[str],
    rules: Rules,
    known_suites: Mapping[str, PlannedSuite] = MappingProxyType({}),
) -> Scores:
    """Score each side over the baseline in each metric, and rank them; verdicts are corrected for all comparisons.

    A case without a `required` metric makes the score incomplete. `known_suites` has the cases of suites by SHA-256.
    Raises `UserError` if a metric is unknown, or if the costs have no entry for a side.
    """
    derive = cached(derive)
    groups = [_groups(sides, index) for index in range(len(sides.names))]
    records = [[record for group in several for record in group] for several in groups]
    bases = []
    if costs:
        inputs = _inputs(costs, sides)
        bases = [basis(*side) for side in zip(sides.names, inputs, records, strict=True)]
        derive = with_costs(derive, _by_trial(sides, inputs), costs.currency)
    refuse_unknown(metrics, [record for of_side in records for record in of_side], derive)
    judged = _judged(sides, metrics, derive, weights, rules)
    summaries = [_side(*side) for side in zip(sides.names, groups, sides.records, sides.unrun, strict=True)]
    scores = []
    for index in range(1, len(sides.names)):
        made = sides.made[0, index]
        common = [_common(match) for match in made.matches]
        scored = [_metric(judged[(0, index), name], len(made.unmatched)) for name in metrics]
        scores.append(
            Score(
                baseline=summaries[0],
                contender=summaries[index],
                metrics=scored,
                unmatched=list(made.unmatched),
                notes=[
                    *made.notes,
                    *suite_notes(made.matches, known_suites),
                    *_notes(made.matches),
                    *_in_turns(made.matches, scored),
                    *(cost_notes([records[0], records[index]]) if costs else []),
                    *weights.unused(common),
                ],
                missing=_missing(
                    [sides.records[0], sides.records[index]],
                    [sides.unrun[0], sides.unrun[index], sides.astray],
                    len(made.unmatched),
                    len(weights.unused(common)),
                    [metric for metric in scored if metric.metric in required],
                ),
                shared=made.shared,
            )
        )
    matches = [match for index in range(1, len(sides.names)) for match in sides.made[0, index].matches]
    return Scores(
        sides=summaries,
        rankings=[
            rank(name, sides.names, {pair: mean.mean for (pair, own), mean in judged.items() if own == name})
            for name in metrics
        ],
        scores=scores,
        weights=list(weights.entries),
        currency=costs.currency if costs else None,
        costs=bases,
        missing=_missing(
            records,
            [*sides.unrun, sides.astray],
            sum(len(score.unmatched) for score in scores),
            len(weights.unused([_common(match) for match in matches])),
            [metric for score in scores for metric in score.metrics if metric.metric in required],
        ),
    )


def _in_turns(matches: Sequence[matching.Match], scored: Sequence[MetricScore]) -> list[str]:
    """Return how to measure two sides in turns that were not interleaved."""
    unpaired = any(metric.mean and metric.mean.method.startswith("unpaired") for metric in scored)
    return list(filter(None, [advice(matches)])) if unpaired else []


def _groups(sides: Sides, index: int) -> list[tuple[Record, ...]]:
    """Return the trials of a side, each case once, of all cases that it shares with the baseline."""
    if index:
        return [match.contender.records for match in sides.made[0, index].matches]
    own = [match.baseline.records for pair, made in sides.made.items() if pair[0] == 0 for match in made.matches]
    return list({records[0].trial_id: records for records in own}.values())


def _inputs(costs: Costs, sides: Sides) -> list[Inputs]:
    """Return the cost inputs of each side; one of several contenders goes by its name only."""
    contender = "contender" if len(sides.names) == 2 else None
    return [costs.of(contender if index else "baseline", name) for index, name in enumerate(sides.names)]


def _by_trial(sides: Sides, inputs: Sequence[Inputs]) -> dict[str, Inputs]:
    """Return the cost inputs of each trial that is compared, by its id."""
    return {
        record.trial_id: inputs[index]
        for pair, made in sides.made.items()
        for match in made.matches
        for index, side in zip(pair, (match.baseline, match.contender), strict=True)
        for record in side.records
    }


def _missing(
    records: Iterable[Sequence[Record]],
    unrun: Iterable[Sequence[MissingTrials]],
    unmatched: int,
    unused: int,
    required: Iterable[MetricScore],
) -> dict[str, int]:
    """Count what was requested and is not in the score, by kind."""
    missing = Counter(
        {
            "trials failed": sum(record.error is not None for side in records for record in side),
            "trials not run": sum(lacking.trials for several in unrun for lacking in several),
            "cases without a counterpart": unmatched,
            "weights of no case": unused,
        }
    )
    for metric in required:
        lacking = sum(bool(case.missing) for case in metric.by_case if case.weight)
        missing[f"cases in which trials have no {metric.metric}"] += lacking
        missing[f"scores of {metric.metric}"] += int(metric.mean is None and not lacking)
    return {what: number for what, number in missing.items() if number}


def _common(match: matching.Match) -> Factors:
    """Return the factors of a case that both sides share."""
    one, two = (factors_of(side.records[0].case) for side in (match.baseline, match.contender))
    return {name: value for name, value in one.items() if name in two and two[name] == value}


def _judged(
    sides: Sides, metrics: Sequence[str], derive: Derive, weights: Weights, rules: Rules
) -> dict[tuple[Pair, str], _Judged]:
    """Judge every two sides in each metric; verdicts are corrected for the number of all these means (Holm)."""
    judged: dict[tuple[Pair, str], _Judged] = {}
    means: dict[tuple[Pair, str], tuple[list[Tested], Mean]] = {}
    for pair, made in sides.made.items():
        shares = [weights.of(_common(match)) for match in made.matches]
        for name in metrics:
            cases = [Tested(match, replace(rules, metric=name), derive) for match in made.matches]
            judged[pair, name] = _Judged(cases, shares, None)
            weighed = [(case, weight) for case, weight in zip(cases, shares, strict=True) if case.shift and weight]
            if weighed:
                means[pair, name] = [case for case, _ in weighed], Mean.of(*zip(*weighed, strict=True))
    for key, mean in zip(means, geometric_means(list(means.values())), strict=True):
        judged[key] = replace(judged[key], mean=mean if mean.better == "higher" else _turned(mean))
    return judged


def _metric(judged: _Judged, others: int) -> MetricScore:
    """Return the score in one metric; `others` is the number of cases without a counterpart."""
    cases, mean = judged.cases, judged.mean
    metric = next(side.metric for case in cases for side in (case.baseline, case.contender) if side.metric)
    turn = -1 if metric.better == "lower" else 1
    by_case = [_case(case, weight, turn) for case, weight in zip(cases, judged.weights, strict=True)]
    counted = [case for case in by_case if case.weight]
    reasons = [reason for case in counted for reason in case.missing]
    return MetricScore(
        metric=cases[0].rules.metric,
        unit=metric.unit,
        better=metric.better,
        scored=sum(case.ratio is not None for case in counted),
        cases=len(counted) + others,
        mean=mean,
        reason=None if mean else reasons[0] if reasons else "every case has weight 0",
        by_case=by_case,
    )


def _turned(mean: GeometricMean) -> GeometricMean:
    """Return the mean of the inverse ratios."""
    low, high = (None if end is None else 1 / end for end in (mean.high, mean.low))
    return structs.replace(mean, ratio=1 / mean.ratio, low=low, high=high, better="higher")


def _case(case: Tested, weight: float, turn: int) -> CaseScore:
    interval = case.test.interval(1 - case.alpha) if case.test else None
    low, high = sorted(math.exp(turn * end) for end in interval) if interval else (None, None)
    return CaseScore(
        case=dict(case.match.case),
        name=case.match.name,
        weight=weight,
        baseline_value=case.baseline.median,
        contender_value=case.contender.median,
        ratio=math.exp(turn * case.shift.estimate) if case.shift else None,
        low=low,
        high=high,
        missing=[line for side in (case.baseline, case.contender) if (line := _lacking(side, case.rules.metric))],
    )


def _lacking(side: Sample, metric: str) -> str:
    """Return why some or all trials of a side have no value of a metric; empty if all have one."""
    return side.missing(metric) or ("" if side.trials else f"{side.name}: no trial succeeded")


def _notes(matches: Sequence[matching.Match]) -> list[str]:
    """Describe differences between the sides, each with its number of cases; what their names state is left out."""
    notes: Counter[str] = Counter()
    for match in matches:
        both = match.baseline.records, match.contender.records
        one, two = (factors_of(records[0].case) for records in both)
        named = {part.partition("=")[0] for part in match.contender.name.split()}
        changed = changes(one, two, [name for name in one if name in two.keys() - DEFAULTS.keys() - named])
        notes.update([f"the sides differ in {', '.join(changed)}"] if changed else [])
        notes.update(dict.fromkeys([*diagnosis.between(*both, "flop_per_s"), *diagnosis.energies(*both)], 1))
    return [f"({count} of {len(matches)} cases) {note}" for note, count in notes.items()]


def _side(
    name: str, groups: Sequence[Sequence[Record]], records: Sequence[Record], unrun: Sequence[MissingTrials]
) -> ScoredSide:
    """Summarise one side from its records by case that are scored, all its records, and its trials without one."""
    failed: dict[tuple[str, str], list[Failure]] = {}
    for record in records:
        if record.error:
            failed.setdefault((names.name(factors_of(record.case)), record.error.kind), []).append(record.error)
    asked = len(records) + sum(lacking.trials for lacking in unrun)
    ok = sum(record.error is None for record in records)
    return ScoredSide(
        name=name,
        suites=suites_of(records),
        asked=asked,
        ok=ok,
        success=ok / asked,
        disturbed=count(groups).number,
        failed=[f"{case}: {len(errors)} x {kind}: {errors[0].message}" for (case, kind), errors in failed.items()],
        unrun=[
            f"{names.name(factors_of(lacking.case))}: {lacking.trials} of run {lacking.run_id}" for lacking in unrun
        ],
        warnings=diagnosis.doubts(groups),
    )
