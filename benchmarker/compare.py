"""Comparisons: what the trials of two configurations say of each other, and how far that can be trusted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from benchmarker.comparison import STEP_TIME, Classical, Comparison, Family, GeometricMean, Rules, Verdict
from benchmarker.notes import notes_on
from benchmarker.pairing import Key, Sample, Tested, step_times
from benchmarker.stats.classical import describe, rank_sum
from benchmarker.stats.shift import paired, unpaired
from benchmarker.stats.verdict import enough, holm, judge

if TYPE_CHECKING:
    from benchmarker.api import Metric
    from benchmarker.matching import Match
    from benchmarker.metrics import Derive
    from benchmarker.stats.verdict import Outcome


def compare(
    matches: Sequence[Match], rules: Rules, derive: Derive, unmatched: Sequence[str] = (), notes: Sequence[str] = ()
) -> Family:
    """Judge matches together; a claim has to hold in spite of the number of claims (Holm).

    Parts of a step have no geometric mean: they differ in weight.
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
    means = [
        _Mean.of(group)
        for group in groups.values()
        if len(group) > 1
        and all(each.shift is not None for each in group)
        and not rules.blocks_as_trials
        and rules.level == "trial"
    ]
    different, same = holm([mean.p_different for mean in means]), holm([mean.p_same for mean in means])
    return Family(
        comparisons=comparisons,
        geometric_means=[mean.judged(*ps) for mean, *ps in zip(means, different, same, strict=True)],
        unmatched=list(unmatched),
        notes=list(notes),
    )


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
        trials=(len(a.trials), len(b.trials)),
        baseline_trials={trial.record.trial_id: math.exp(trial.log) for trial in a.trials},
        contender_trials={trial.record.trial_id: math.exp(trial.log) for trial in b.trials},
        blocks=len(tested.differences) if tested.method == "paired" else None,
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
        variance_inflation=_variance_inflation(a, b) if rules.metric.startswith("step_time") else None,
        low_noise_ratio=_low_noise(tested) if test and rules.metric == STEP_TIME else None,
        verdict=word(outcome, metric),
        enough=enough(test, tested.margin, tested.alpha / family) if test and outcome == "undecided" else None,
        notes=notes_on(tested, family),
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
    if tested.method == "paired":
        value = paired(np.array([two.low_noise - one.low_noise for one, two in tested.pairs])).estimate
    else:
        logs = [np.array([trial.low_noise for trial in each.trials]) for each in (tested.baseline, tested.contender)]
        value = unpaired(*logs).estimate
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


@dataclass(frozen=True, slots=True)
class _Mean:
    """The mean log ratio of several cases, and what its test says; p-values are held against alpha, looks or none."""

    group: Sequence[Tested]
    method: str
    shift: float
    interval: tuple[float, float] | None
    p_different: float
    p_same: float

    @classmethod
    def of(cls, group: Sequence[Tested]) -> _Mean:
        """Paired where all cases are and share at least two blocks, else unpaired."""
        keys = set.intersection(*(set(each.differences) for each in group))
        if len(keys) > 1 and all(each.method == "paired" for each in group):
            return cls._paired(group, sorted(keys))
        return cls._unpaired(group)

    @classmethod
    def _paired(cls, group: Sequence[Tested], keys: Sequence[Key]) -> _Mean:
        """A block's mean log ratio over the cases is one value, tested as one comparison's blocks are."""
        first = group[0]
        shift = paired(np.array([np.mean([each.differences[key] for each in group]) for key in keys]))
        scale = first.rules.alpha / first.alpha
        return cls(
            group,
            "paired by block",
            shift.estimate,
            shift.interval(1 - first.alpha),
            min(1.0, shift.p_different * scale),
            min(1.0, shift.p_within(first.margin) * scale),
        )

    @classmethod
    def _unpaired(cls, group: Sequence[Tested]) -> _Mean:
        """A t interval: a case's mean log ratio has the variance of two independent samples.

        The degrees of freedom are those of Welch and Satterthwaite (Welch, Biometrika 34, 1947). A single trial on a
        side gives no interval.
        """
        method, first = "unpaired: Welch-Satterthwaite", group[0]
        value = float(np.mean([each.shift.estimate for each in group if each.shift]))
        sides = [sample.logs for each in group for sample in (each.baseline, each.contender)]
        parts = np.array([logs.var(ddof=1) / len(logs) if len(logs) > 1 else np.nan for logs in sides])
        error = math.sqrt(parts.sum()) / len(group)
        if not error > 0:
            return cls(group, method, value, None, 1.0, 1.0)
        freedom = parts.sum() ** 2 / sum(part**2 / (len(logs) - 1) for part, logs in zip(parts, sides, strict=True))
        half = float(stats.t.ppf(1 - first.rules.alpha / 2, freedom)) * error
        return cls(
            group,
            method,
            value,
            (value - half, value + half),
            2 * float(stats.t.sf(abs(value) / error, freedom)),
            float(stats.t.sf((first.margin - abs(value)) / error, freedom)),
        )

    def judged(self, p_adjusted: float, p_same: float) -> GeometricMean:
        """With its verdict, from the p-values after correction for the number of means."""
        first = self.group[0]
        metric = first.baseline.metric
        ratio = float(np.mean([each.shift.estimate for each in self.group if each.shift]))
        alpha = first.alpha if self.method == "paired by block" else first.rules.alpha
        return GeometricMean(
            baseline=first.match.baseline.name,
            contender=first.match.contender.name,
            cases=len(self.group),
            better=metric.better if metric else "lower",
            method=self.method,
            ratio=math.exp(ratio),
            low=math.exp(self.interval[0]) if self.interval else None,
            high=math.exp(self.interval[1]) if self.interval else None,
            level=1 - alpha,
            p_adjusted=p_adjusted if self.interval else None,
            verdict=word(judge(self.shift, p_adjusted, p_same, first.rules.alpha), metric),
        )


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
