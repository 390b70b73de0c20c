"""Comparisons: what the trials of two configurations say of each other, and how far that can be trusted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from benchmarker import diagnosis
from benchmarker.comparison import STEP_TIME, Classical, Comparison, Family, GeometricMean, Rules, Verdict
from benchmarker.pairing import Sample, Tested, step_times
from benchmarker.stats.classical import describe, rank_sum
from benchmarker.stats.shift import fewest, paired, unpaired
from benchmarker.stats.verdict import enough, holm, judge

if TYPE_CHECKING:
    from benchmarker.api import Metric
    from benchmarker.matching import Match
    from benchmarker.metrics import Derive
    from benchmarker.stats.verdict import Outcome


def compare(matches: Sequence[Match], rules: Rules, derive: Derive, unmatched: Sequence[str] = ()) -> Family:
    """Judge matches together; a claim has to hold in spite of the number of claims (Holm)."""
    tested = [Tested(match, rules, derive) for match in matches]
    different = holm([each.p_different for each in tested])
    same = holm([each.p_same for each in tested])
    comparisons = [
        _comparison(each, p, p_same, len(tested)) for each, p, p_same in zip(tested, different, same, strict=True)
    ]
    groups: dict[tuple[str, str], list[Tested]] = {}
    for each in tested:
        groups.setdefault((each.baseline.name, each.contender.name), []).append(each)
    means = [
        _geometric_mean(group)
        for group in groups.values()
        if len(group) > 1 and all(each.shift is not None for each in group)
    ]
    return Family(comparisons=comparisons, geometric_means=means, unmatched=list(unmatched))


def _comparison(tested: Tested, p: float, p_same: float, family: int) -> Comparison:
    a, b, test, rules = tested.baseline, tested.contender, tested.test, tested.rules
    metric = a.metric or b.metric
    interval = test.interval(1 - tested.alpha) if test else None
    outcome = judge(test.estimate, p, p_same, rules.alpha) if test else "undecided"
    blocks = [len(record.blocks.duration_ns) for record in (*a.records, *b.records) if record.blocks]
    return Comparison(
        case=dict(tested.match.case),
        baseline=a.name,
        contender=b.name,
        metric=rules.metric,
        unit=metric.unit if metric else "",
        better=metric.better if metric else "lower",
        method=tested.method,
        trials=(len(a.records), len(b.records)),
        blocks=len(tested.differences) if tested.method == "paired" else None,
        timed_blocks=float(np.median(blocks or [0])),
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
        variance_inflation=_variance_inflation(a, b) if rules.metric.startswith("step_time") else None,
        low_noise_ratio=_low_noise(tested) if test and rules.metric == STEP_TIME else None,
        verdict=word(outcome, metric),
        enough=enough(test, tested.margin, tested.alpha / family) if test and outcome == "undecided" else None,
        notes=_notes(tested, family),
    )


def word(outcome: Outcome, metric: Metric | None) -> Verdict:
    """The verdict on the contender in the metric's own word: of times and rates it is speed that is judged."""
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
    """The ratio of the tenth percentiles, estimated as that of the medians is."""
    a, b = tested.baseline.low_noise, tested.contender.low_noise
    if tested.method == "paired":
        value = paired(np.array([b[key] - a[key] for key in tested.differences])).estimate
    else:
        value = unpaired(np.array(list(a.values())), np.array(list(b.values()))).estimate
    return math.exp(value) if math.isfinite(value) else None


def _process_deviation(*samples: Sample) -> float | None:
    """Standard deviation of the logarithm over trials, pooled over the sides that have at least two."""
    variances = [sample.logs.var(ddof=1) for sample in samples if len(sample.logs) > 1]
    return math.sqrt(np.mean(variances)) if variances else None


def _variance_inflation(*samples: Sample) -> float | None:
    """Variance of the trials' mean over that of a mean of independent blocks; the mean of the sides."""
    ratios = []
    for sample in samples:
        blocks = [step_times(record) for record in sample.records]
        within = [each.var(ddof=1) / len(each) for each in blocks if len(each) > 1]
        if len(blocks) > 1 and within and np.mean(within) > 0:
            ratios.append(np.var([each.mean() for each in blocks], ddof=1) / np.mean(within))
    return float(np.mean(ratios)) if ratios else None


def _geometric_mean(group: Sequence[Tested]) -> GeometricMean:
    """The mean log ratio over cases.

    Where all are paired, a block's mean over the cases is one value, tested as one comparison's blocks are. Else each
    case's difference of mean logs has the variance of two independent samples, and their mean a t interval with the
    degrees of freedom of Welch and Satterthwaite (Welch, Biometrika 34, 1947); a single trial on a side gives none.
    """
    margin, alpha, metric = group[0].margin, group[0].alpha, group[0].baseline.metric
    keys = set.intersection(*(set(each.differences) for each in group))
    if all(each.method == "paired" for each in group) and len(keys) > 1:
        shift = paired(np.array([np.mean([each.differences[key] for each in group]) for key in sorted(keys)]))
        value, interval, method = shift.estimate, shift.interval(1 - alpha), "paired by block"
        outcome = judge(value, shift.p_different, shift.p_within(margin), alpha)
    else:
        method = "unpaired: Welch-Satterthwaite"
        sides = [sample.logs for each in group for sample in (each.baseline, each.contender)]
        value = float(np.mean([each.contender.logs.mean() - each.baseline.logs.mean() for each in group]))
        parts = np.array([logs.var(ddof=1) / len(logs) if len(logs) > 1 else np.nan for logs in sides])
        error, outcome, interval = math.sqrt(parts.sum()) / len(group), "undecided", None
        if error > 0:
            freedom = parts.sum() ** 2 / sum(part**2 / (len(logs) - 1) for part, logs in zip(parts, sides, strict=True))
            half = float(stats.t.ppf(1 - alpha / 2, freedom)) * error
            interval = (value - half, value + half)
            p_same = float(stats.t.sf((margin - abs(value)) / error, freedom))
            outcome = judge(value, 2 * float(stats.t.sf(abs(value) / error, freedom)), p_same, alpha)
    return GeometricMean(
        baseline=group[0].match.baseline.name,
        contender=group[0].match.contender.name,
        cases=len(group),
        better=metric.better if metric else "lower",
        method=method,
        ratio=math.exp(value),
        low=math.exp(interval[0]) if interval else None,
        high=math.exp(interval[1]) if interval else None,
        level=1 - alpha,
        verdict=word(outcome, metric),
    )


def _notes(tested: Tested, family: int) -> list[str]:
    """What a reader of the verdict has to know."""
    a, b = tested.baseline, tested.contender
    found = []
    if tested.method in ("paired", "unpaired"):
        n = len(tested.differences) if tested.method == "paired" else min(len(a.logs), len(b.logs))
        least = fewest(tested.alpha / family, is_paired=tested.method == "paired")
        if n < least:
            what = "blocks" if tested.method == "paired" else "trials a side"
            found.append(
                f"{n} {what} cannot reach p < {tested.alpha / family:.2g}, whatever they say: at least {least} can"
            )
        if tested.looks and tested.method == "paired":
            found.append(
                f"the run could stop early: each look has {tested.alpha:.2g} of alpha, and intervals are wider"
            )
    for sample in (a, b):
        failed = [record for record in sample.all if record.error]
        if failed:
            assert failed[0].error
            found.append(f"{sample.name}: {len(failed)} of {len(sample.all)} trials failed ({failed[0].error.message})")
        elif not sample.records:
            found.append(f"{sample.name}: no trial has a {tested.rules.metric}")
    found += diagnosis.differences(a.records, b.records)
    found += diagnosis.disturbed([*a.records], [*b.records])
    found += diagnosis.unsteady([*a.records, *b.records])
    if tested.method == "paired":
        found += diagnosis.effects(
            np.array(list(tested.differences.values())),
            np.array([b.trials[key][0].design.slot > a.trials[key][0].design.slot for key in tested.differences]),
            np.array([(a.trials[key][1] + b.trials[key][1]) / 2 for key in tested.differences]),
        )
    elif tested.method == "unpaired":
        found += [*diagnosis.drifting(a.name, a.logs), *diagnosis.drifting(b.name, b.logs)]
    return found


def classical(match: Match) -> Classical | None:
    """The classical numbers of a match; None where a side has no timed block."""
    blocks = [
        np.concatenate([step_times(record) for record in side.records if record.blocks] or [np.array([])])
        for side in (match.baseline, match.contender)
    ]
    if not all(map(len, blocks)):
        return None
    return Classical(
        case=dict(match.case),
        baseline=match.baseline.name,
        contender=match.contender.name,
        baseline_blocks=describe(blocks[0]),
        contender_blocks=describe(blocks[1]),
        rank_sum=rank_sum(*blocks),
    )
