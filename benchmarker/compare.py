"""Comparisons: what the trials of two configurations say of each other, and how far that can be trusted."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
from msgspec import Struct
from scipy import stats

from benchmarker import diagnosis
from benchmarker.stats.classical import Description, RankSum, describe, rank_sum
from benchmarker.stats.sequential import share
from benchmarker.stats.shift import Shift, fewest, paired, unpaired
from benchmarker.stats.verdict import enough, holm, judge

if TYPE_CHECKING:
    from benchmarker.api import Metric
    from benchmarker.configurations import Value
    from benchmarker.matching import Match, Side
    from benchmarker.record import Record
    from benchmarker.stats.verdict import Outcome

Key = tuple[str, int]
"""A block: its run, and its number there."""
Derive = Callable[["Record"], Mapping[str, "Metric"]]
Method = Literal["paired", "unpaired", "blocks of one process as if independent", "none"]
Verdict = Literal["faster", "slower", "better", "worse", "same", "undecided"]

METHODS: dict[Method, str] = {
    "paired": "paired by block: exact signed-rank test, Hodges-Lehmann ratio, interval from Walsh averages",
    "unpaired": "unpaired: Mann-Whitney test and its Hodges-Lehmann ratio; not interleaved: assumes that nothing "
    "drifted from the one side's trials to the other's",
    "blocks of one process as if independent": "every timed block as if independent, as asked; blocks of one process "
    "are not, and this calls equal configurations different in about two cases of three",
    "none": "no test: of a single process on a side the spread between processes cannot be seen",
}
STEP_TIME = "step_time_median_s"
LOW_NOISE = "step_time_p10_s"


@dataclass(frozen=True, slots=True)
class Rules:
    """What is compared and how it is judged: α, and δ, the largest change that counts as none (a share)."""

    metric: str = STEP_TIME
    alpha: float = 0.05
    delta: float = 0.02
    blocks_as_trials: bool = False


class Comparison(Struct, frozen=True, kw_only=True):
    """What two sides' trials say: contender over baseline, of one metric.

    The interval has the level `level`; `p_value` is two-sided, `p_adjusted` the same after Holm's correction for all
    comparisons made together, which the verdict goes by. `probability_lower` is the chance that the contender's value
    is the lower one of a block, or of two trials. `process_deviation` is the spread between processes (standard
    deviation of the logarithm); `variance_inflation`, by how much the variance of a process's mean exceeds what its
    blocks would give were they independent. `enough` is how many blocks (or trials a side) would likely decide.
    """

    case: dict[str, Value]
    baseline: str
    contender: str
    metric: str
    unit: str
    better: Literal["higher", "lower"]
    method: Method
    trials: tuple[int, int]
    blocks: int | None
    timed_blocks: float
    baseline_value: float | None
    contender_value: float | None
    ratio: float | None
    low: float | None
    high: float | None
    level: float
    p_value: float | None
    p_adjusted: float | None
    p_same: float | None
    delta: float
    probability_lower: float | None
    process_deviation: float | None
    variance_inflation: float | None
    low_noise_ratio: float | None
    verdict: Verdict
    enough: int | None
    notes: list[str]


class GeometricMean(Struct, frozen=True, kw_only=True):
    """Contender over baseline, over all cases of a family: the geometric mean of the ratios, and its interval."""

    baseline: str
    contender: str
    cases: int
    better: Literal["higher", "lower"]
    method: str
    ratio: float
    low: float | None
    high: float | None
    level: float
    verdict: Verdict


class Family(Struct, frozen=True, kw_only=True):
    """Comparisons made together, their geometric means, and what could not be compared."""

    comparisons: list[Comparison]
    geometric_means: list[GeometricMean]
    unmatched: list[str]


class Classical(Struct, frozen=True, kw_only=True):
    """Step times of all timed blocks, s, described and tested the classical way, the baseline first."""

    case: dict[str, Value]
    baseline: str
    contender: str
    baseline_blocks: Description
    contender_blocks: Description
    rank_sum: RankSum


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


class Sample:
    """The trials of one side that have a value of the metric."""

    def __init__(self, side: Side, rules: Rules, derive: Derive) -> None:
        self.name = side.name
        self.all = side.records
        found = [(record, derive(record)) for record in side.records]
        self.metric = next((metrics[rules.metric] for _, metrics in found if rules.metric in metrics), None)
        self.trials: dict[Key, tuple[Record, float]] = {}
        self.low_noise: dict[Key, float] = {}
        for record, metrics in found:
            value = metrics[rules.metric].value if rules.metric in metrics else None
            if record.error is None and value is not None and value > 0:
                key = (record.run_id, record.trial)
                self.trials[key] = (record, math.log(value))
                self.low_noise[key] = (
                    math.log(metrics[LOW_NOISE].value or math.nan) if LOW_NOISE in metrics else math.nan
                )
        self.records = [record for record, _ in self.trials.values()]
        self.logs = np.array([value for _, value in self.trials.values()])
        self.runs = {record.run_id for record in side.records}

    @cached_property
    def median(self) -> float | None:
        """The median over trials."""
        return float(np.median(np.exp(self.logs))) if len(self.logs) else None

    def block_logs(self) -> np.ndarray:
        """Logarithms of the step times of all timed blocks, s."""
        logs: np.ndarray = np.log(np.concatenate([step_times(record) for record in self.records]))
        return logs


def step_times(record: Record) -> np.ndarray:
    """The mean step time of each timed block, s."""
    assert record.blocks is not None
    times: np.ndarray = np.array(record.blocks.duration_ns) / record.blocks.steps_per_block / 1e9
    return times


class _Seen:
    """One match with its test, before the verdict."""

    def __init__(self, match: Match, rules: Rules, derive: Derive) -> None:
        self.match, self.rules = match, rules
        self.baseline, self.contender = (Sample(side, rules, derive) for side in (match.baseline, match.contender))
        self.differences: dict[Key, float] = {}
        self.shift: Shift | None = None
        self.method: Method = "none"
        a, b = self.baseline, self.contender
        if rules.blocks_as_trials:
            if len(a.records) and len(b.records):
                self.shift, self.method = (
                    unpaired(a.block_logs(), b.block_logs()),
                    "blocks of one process as if independent",
                )
            return
        common = a.trials.keys() & b.trials.keys()
        if a.runs == b.runs and common:
            self.differences = {key: self._difference(key) for key in sorted(common)}
            self.shift = paired(np.array(list(self.differences.values())))
            self.method = "paired" if len(common) > 1 else "none"
        elif len(a.logs) and len(b.logs):
            self.shift = unpaired(a.logs, b.logs)
            self.method = "unpaired" if min(len(a.logs), len(b.logs)) > 1 else "none"

    def _difference(self, key: Key) -> float:
        """Log ratio of a block; in a duet the median over pairs, which are closer in time than the trials are."""
        (one, first), (two, second) = self.baseline.trials[key], self.contender.trials[key]
        if two.design.partner == one.trial_id and self.rules.metric == STEP_TIME:
            return float(np.median(np.log(step_times(two) / step_times(one))))
        return second - first

    @cached_property
    def looks(self) -> list[int]:
        return next((record.design.looks for record in self.contender.records if record.design.looks), [])

    @cached_property
    def alpha(self) -> float:
        return share(self.rules.alpha, self.looks if self.method == "paired" else [])

    @property
    def margin(self) -> float:
        return math.log1p(self.rules.delta)

    @property
    def p_different(self) -> float:
        return 1.0 if self.shift is None or self.method == "none" else self.shift.p_different

    @property
    def p_same(self) -> float:
        return 1.0 if self.shift is None or self.method == "none" else self.shift.p_within(self.margin)


def compare(matches: Sequence[Match], rules: Rules, derive: Derive, unmatched: Sequence[str] = ()) -> Family:
    """Judge matches together; a claim has to hold in spite of the number of claims (Holm)."""
    seen = [_Seen(match, rules, derive) for match in matches]
    different = holm([each.p_different * rules.alpha / each.alpha for each in seen])
    same = holm([each.p_same * rules.alpha / each.alpha for each in seen])
    comparisons = [
        _comparison(each, min(1.0, p), p_same, rules, len(seen))
        for each, p, p_same in zip(seen, different, same, strict=True)
    ]
    means = []
    for names in dict.fromkeys((each.match.baseline.name, each.match.contender.name) for each in seen):
        group = [each for each in seen if (each.match.baseline.name, each.match.contender.name) == names]
        if len(group) > 1 and all(each.shift is not None for each in group):
            means.append(_geometric_mean(group, rules))
    return Family(comparisons=comparisons, geometric_means=means, unmatched=list(unmatched))


def _comparison(seen: _Seen, p: float, p_same: float, rules: Rules, family: int) -> Comparison:
    a, b, shift = seen.baseline, seen.contender, seen.shift
    metric = a.metric or b.metric
    tested = shift is not None and seen.method != "none"
    interval = shift.interval(1 - seen.alpha) if shift is not None and tested else None
    outcome = judge(shift.estimate, p, p_same, rules.alpha) if shift is not None and tested else "undecided"
    return Comparison(
        case=dict(seen.match.case),
        baseline=a.name,
        contender=b.name,
        metric=rules.metric,
        unit=metric.unit if metric else "",
        better=metric.better if metric else "lower",
        method=seen.method,
        trials=(len(a.records), len(b.records)),
        blocks=len(seen.differences) if seen.method == "paired" else None,
        timed_blocks=float(np.median([len(r.blocks.duration_ns) for r in (*a.records, *b.records) if r.blocks] or [0])),
        baseline_value=a.median,
        contender_value=b.median,
        ratio=math.exp(shift.estimate) if shift else None,
        low=math.exp(interval[0]) if interval else None,
        high=math.exp(interval[1]) if interval else None,
        level=1 - seen.alpha,
        p_value=seen.p_different if tested else None,
        p_adjusted=p if tested else None,
        p_same=seen.p_same if tested else None,
        delta=rules.delta,
        probability_lower=_probability_lower(seen) if tested else None,
        process_deviation=_process_deviation(a, b),
        variance_inflation=_variance_inflation(a, b) if rules.metric.startswith("step_time") else None,
        low_noise_ratio=_low_noise(seen) if rules.metric == STEP_TIME and tested else None,
        verdict=word(outcome, metric),
        enough=enough(shift, seen.margin, seen.alpha / family) if outcome == "undecided" and shift and tested else None,
        notes=_notes(seen, outcome, family),
    )


def word(outcome: Outcome, metric: Metric | None) -> Verdict:
    """The verdict on the contender in the metric's own word: of times and rates it is speed that is judged."""
    if outcome in ("same", "undecided") or metric is None:
        return "same" if outcome == "same" else "undecided"
    good = outcome == metric.better
    if metric.unit == "s" or metric.unit.endswith("/s"):
        return "faster" if good else "slower"
    return "better" if good else "worse"


def _probability_lower(seen: _Seen) -> float:
    if seen.differences:
        signs = np.sign(list(seen.differences.values()))
    else:
        assert seen.shift is not None
        signs = np.sign(seen.shift.points)
    return float(np.mean(signs < 0) + np.mean(signs == 0) / 2)


def _low_noise(seen: _Seen) -> float | None:
    """The ratio of the tenth percentiles, estimated as that of the medians is."""
    a, b = seen.baseline.low_noise, seen.contender.low_noise
    if seen.method == "paired":
        value = paired(np.array([b[key] - a[key] for key in seen.differences])).estimate
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


def _geometric_mean(group: Sequence[_Seen], rules: Rules) -> GeometricMean:
    """The mean log ratio over cases.

    Where all are paired, a block's mean over the cases is one value, tested as one comparison's blocks are. Else each
    case's difference of mean logs has the variance of two independent samples, and their mean a t interval with the
    degrees of freedom of Welch and Satterthwaite (Welch, Biometrika 34, 1947); a single trial on a side gives none.
    """
    margin, alpha, metric = math.log1p(rules.delta), group[0].alpha, group[0].baseline.metric
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


def _notes(seen: _Seen, outcome: Outcome, family: int) -> list[str]:
    """What a reader of the verdict has to know."""
    a, b = seen.baseline, seen.contender
    found = []
    if seen.rules.blocks_as_trials:
        found.append(f"method: {METHODS[seen.method]}")
    elif seen.method != "none":
        n = len(seen.differences) if seen.method == "paired" else min(len(a.logs), len(b.logs))
        least = fewest(seen.alpha / family, is_paired=seen.method == "paired")
        if n < least:
            what = "blocks" if seen.method == "paired" else "trials a side"
            found.append(
                f"{n} {what} cannot reach p < {seen.alpha / family:.2g}, whatever they say: at least {least} can"
            )
        if seen.looks and seen.method == "paired":
            found.append(f"the run could stop early: each look has {seen.alpha:.2g} of alpha, and intervals are wider")
    for sample in (a, b):
        failed = [record for record in sample.all if record.error]
        if failed:
            assert failed[0].error
            found.append(f"{sample.name}: {len(failed)} of {len(sample.all)} trials failed ({failed[0].error.message})")
        elif not sample.records:
            found.append(f"{sample.name}: no trial has a {seen.rules.metric}")
    found += diagnosis.differences(a.records, b.records)
    found += diagnosis.disturbed([*a.records], [*b.records])
    found += diagnosis.unsteady([*a.records, *b.records])
    if seen.method == "paired":
        found += diagnosis.effects(
            np.array(list(seen.differences.values())),
            np.array([b.trials[key][0].trial_id > a.trials[key][0].trial_id for key in seen.differences]),
            np.array([(a.trials[key][1] + b.trials[key][1]) / 2 for key in seen.differences]),
        )
    return found
