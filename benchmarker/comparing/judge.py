"""Judge comparisons: derive a verdict, its evidence and its notes from the trials of two configurations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from benchmarker.comparing.geometric_mean import Mean
from benchmarker.comparing.notes import notes_on
from benchmarker.comparing.results import Comparison, Family, GeometricMean, Rules, Verdict
from benchmarker.comparing.samples import Sample, Tested
from benchmarker.records.step_times import STEP_TIME, step_times
from benchmarker.stats.shift import paired, unpaired
from benchmarker.stats.verdict import enough, holm, judge

if TYPE_CHECKING:
    from benchmarker.api.metric import Metric
    from benchmarker.comparing.matching import Match
    from benchmarker.hooks.metrics import Derive
    from benchmarker.stats.verdict import Outcome


def compare(
    matches: Sequence[Match],
    rules: Rules,
    derive: Derive,
    unmatched: Sequence[str] = (),
    notes: Sequence[str] = (),
    shared: str = "",
) -> Family:
    """Judge matches together; p-values are corrected for the number of comparisons (Holm).

    Parts of a step have no geometric mean, because they differ in weight.
    """
    tested = [Tested(match, rules, derive) for match in matches]
    different = holm([each.p_different for each in tested])
    same = holm([each.p_same for each in tested])
    comparisons = [
        _comparison(each, p, p_same, len(tested)) for each, p, p_same in zip(tested, different, same, strict=True)
    ]
    groups: dict[tuple[str, str], list[Tested]] = {}
    for each in tested:
        groups.setdefault((each.baseline.name, each.contender.name), []).append(each)
    averaged = [
        group
        for group in groups.values()
        if len(group) > 1
        and all(each.shift is not None for each in group)
        and not rules.blocks_as_trials
        and rules.level == "trial"
    ]
    means = [Mean.of(group) for group in averaged]
    different, same = holm([mean.p_different for mean in means]), holm([mean.p_same for mean in means])
    return Family(
        comparisons=comparisons,
        geometric_means=[geometric_mean(*each) for each in zip(averaged, means, different, same, strict=True)],
        unmatched=list(unmatched),
        notes=list(notes),
        shared=shared,
    )


def _comparison(tested: Tested, p: float, p_same: float, family: int) -> Comparison:
    a, b, test, rules = tested.baseline, tested.contender, tested.test, tested.rules
    metric = a.metric or b.metric
    interval = test.interval(1 - tested.alpha) if test else None
    outcome = judge(test.estimate, p, p_same, rules.alpha) if test else "undecided"
    blocks = [len(record.blocks.duration_ns) for record in (*a.records, *b.records) if record.blocks]
    return Comparison(
        case=dict(tested.match.case),
        name=tested.match.name,
        baseline=a.name,
        contender=b.name,
        metric=rules.metric,
        unit=metric.unit if metric else "",
        better=metric.better if metric else "lower",
        method=tested.method,
        trials=(len(a.trials), len(b.trials)),
        baseline_trials={trial.record.trial_id: math.exp(trial.log) for trial in a.trials},
        contender_trials={trial.record.trial_id: math.exp(trial.log) for trial in b.trials},
        rounds=len(tested.differences) if tested.method == "paired" else None,
        timed_blocks=float(np.median(blocks or [0])) if rules.level == "trial" else None,
        baseline_value=a.median,
        contender_value=b.median,
        ratio=math.exp(tested.shift.estimate) if tested.shift else None,
        low=math.exp(interval[0]) if interval else None,
        high=math.exp(interval[1]) if interval else None,
        level=1 - tested.alpha,
        p_value=test.p_different if test else None,
        p_adjusted=p if test else None,
        p_same=p_same if test else None,
        delta=rules.delta,
        probability_lower=_probability_lower(tested) if test else None,
        process_deviation=_process_deviation(a, b),
        design_effect=_design_effect(a, b) if rules.metric.startswith("step_time") else None,
        low_noise_ratio=_low_noise(tested) if test and rules.metric == STEP_TIME else None,
        verdict=word(outcome, metric),
        enough=enough(test, tested.margin, tested.alpha / family) if test and outcome == "undecided" else None,
        looks=tested.looks if len(tested.looks) > 1 else [],
        notes=notes_on(tested, family),
    )


def word(outcome: Outcome, metric: Metric | None) -> Verdict:
    """Return the verdict on the contender: faster or slower for times and rates, better or worse for other metrics."""
    if outcome in ("same", "undecided") or metric is None:
        return "same" if outcome == "same" else "undecided"
    good = outcome == metric.better
    if metric.unit == "s" or metric.unit.endswith("/s"):
        return "faster" if good else "slower"
    return "better" if good else "worse"


def _probability_lower(tested: Tested) -> float:
    if tested.differences:
        signs = np.sign(list(tested.differences.values()))
    else:
        assert tested.shift is not None
        signs = np.sign(tested.shift.points)
    return float(np.mean(signs < 0) + np.mean(signs == 0) / 2)


def _low_noise(tested: Tested) -> float | None:
    """Return the ratio of the tenth percentiles, estimated like the ratio of the medians."""
    if tested.method == "paired":
        value = paired(np.array([two.low_noise - one.low_noise for one, two in tested.pairs])).estimate
    else:
        logs = [np.array([trial.low_noise for trial in each.trials]) for each in (tested.baseline, tested.contender)]
        value = unpaired(*logs).estimate
    return math.exp(value) if math.isfinite(value) else None


def _process_deviation(*samples: Sample) -> float | None:
    """Return the standard deviation of the logarithm over trials, pooled over the sides with at least two trials."""
    variances = [sample.logs.var(ddof=1) for sample in samples if len(sample.logs) > 1]
    return math.sqrt(np.mean(variances)) if variances else None


def _design_effect(*samples: Sample) -> float | None:
    """Return the variance of trial means over that of means of independent blocks, averaged over the sides."""
    ratios = []
    for sample in samples:
        blocks = [step_times(record) for record in sample.records]
        within = [each.var(ddof=1) / len(each) for each in blocks if len(each) > 1]
        if len(blocks) > 1 and within and np.mean(within) > 0:
            ratios.append(np.var([each.mean() for each in blocks], ddof=1) / np.mean(within))
    return float(np.mean(ratios)) if ratios else None


def geometric_mean(group: Sequence[Tested], mean: Mean, p_adjusted: float, p_same: float) -> GeometricMean:
    """Return a mean with its verdict; the p-values are already corrected for the number of means."""
    first = group[0]
    metric = first.baseline.metric
    return GeometricMean(
        baseline=first.match.baseline.name,
        contender=first.match.contender.name,
        cases=len(group),
        better=metric.better if metric else "lower",
        method=mean.method,
        ratio=mean.ratio,
        low=math.exp(mean.interval[0]) if mean.interval else None,
        high=math.exp(mean.interval[1]) if mean.interval else None,
        level=mean.level,
        p_adjusted=p_adjusted if mean.interval else None,
        verdict=word(judge(mean.shift, p_adjusted, p_same, first.rules.alpha), metric),
    )
