"""Judge comparisons: the verdict on two configurations, its evidence and its notes; and whether a run may end by it."""

import math
from collections.abc import Callable, Sequence

import numpy as np
from msgspec import structs

from benchmarker.api.metric import Metric
from benchmarker.comparing import matching
from benchmarker.comparing.diagnosis import executions
from benchmarker.comparing.disturbances import provisional, suspicions
from benchmarker.comparing.explanation import explanation
from benchmarker.comparing.formatting import ONE_PROCESS, better_and_worse, few_runs, ratio, short, tally
from benchmarker.comparing.matching import Match
from benchmarker.comparing.notes import notes_on, notes_on_cases, notes_on_mean
from benchmarker.comparing.results import Classical, Comparison, Family, GeometricMean, Rules, Verdict
from benchmarker.comparing.samples import BY_RUN, OF_TIMES, Mean, Sample, Tested
from benchmarker.formatting import count, duration_text
from benchmarker.hooks.metrics import Derive
from benchmarker.records.record import Record
from benchmarker.records.step_times import STEP_TIME, step_times
from benchmarker.stats.classical import describe, rank_sum
from benchmarker.stats.shift import fewest, paired, unpaired
from benchmarker.stats.verdict import ShiftVerdict, deciding, enough, holm, judge
from benchmarker.stats.welch import welch


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
    groups: dict[tuple[str, str], tuple[list[Comparison], list[Tested]]] = {}
    for comparison, each in zip(comparisons, tested, strict=True):
        judged, group = groups.setdefault((comparison.baseline, comparison.contender), ([], []))
        judged.append(comparison)
        group.append(each)
    averaged = [
        (judged, group)
        for judged, group in groups.values()
        if len(group) > 1
        and all(each.shift is not None for each in group)
        and not rules.blocks_as_trials
        and all(each.method != "paired by block" for each in group)
        and rules.level == "trial"
    ]
    means = geometric_means([(group, Mean.of(group)) for _, group in averaged])
    return Family(
        comparisons=comparisons,
        geometric_means=[
            structs.replace(mean, notes=[*mean.notes, *notes_on_cases(judged, group, len(tested))])
            for mean, (judged, group) in zip(means, averaged, strict=True)
        ],
        unmatched=list(unmatched),
        notes=list(notes),
        shared=shared,
    )


def _comparison(tested: Tested, p: float, p_same: float, family: int) -> Comparison:
    a, b, test, rules = tested.baseline, tested.contender, tested.test, tested.rules
    metric = a.metric or b.metric
    interval = test.interval(1 - tested.alpha) if test else None
    outcome = judge(test.estimate, p, p_same, rules.alpha) if test else "undecided"
    disturbed = _most_disturbed(tested)
    runs = len(a.runs), len(b.runs)
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
        runs=runs,
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
        verdict=_verdict(outcome, metric),
        provisional=provisional_of(tested),
        execution=_execution([tested.match]),
        refused=tested.mostly_started,
        explanation=_explanation(tested),
        enough=enough(test, tested.margin, tested.alpha / family) if test and outcome == "undecided" else None,
        looks=tested.looks if len(tested.looks) > 1 else [],
        notes=[
            *(f"the verdict is provisional: {text}" for text in _in_process(tested)),
            *_disturbed(disturbed),
            *_suspect(tested),
            *notes_on(tested, family),
        ],
    )


def _explanation(tested: Tested) -> str:
    """Return what accounts for the difference, if step times or their rate are compared and it is above δ."""
    rules, match = tested.rules, tested.match
    if rules.level != "trial" or not rules.metric.startswith(OF_TIMES) or tested.shift is None:
        return ""
    names = short(match.baseline.name), short(match.contender.name)
    return str(explanation(match.baseline, match.contender, names, rules.delta) or "")


def provisional_of(tested: Tested) -> str | None:
    """Return why what is said of two sides is provisional, or None.

    One process of the user measured, most trials were disturbed, there is one run, or the time of a side is suspect.
    """
    a, b = tested.baseline, tested.contender
    few = few_runs(tested.method, (len(a.runs), len(b.runs)))
    return _joined(*_in_process(tested), _most_disturbed(tested), few, *_suspect(tested))


def _in_process(tested: Tested) -> list[str]:
    records = (*tested.baseline.records, *tested.contender.records)
    return [ONE_PROCESS] if any(record.design.in_process for record in records) else []


def _suspect(tested: Tested) -> list[str]:
    sides = () if tested.mostly_started else (tested.baseline, tested.contender)
    return [f"{side.name} is suspect: {text}" for side in sides for text in suspicions(side.records)[:1]]


def _most_disturbed(tested: Tested) -> str | None:
    sides = tested.baseline, tested.contender
    return provisional(*((side.name, [side.records]) for side in sides)) if tested.rules.level == "trial" else None


def _verdict(shift: ShiftVerdict, metric: Metric | None) -> Verdict:
    """Return the verdict on the contender, in the words for its metric."""
    if shift in ("same", "undecided") or metric is None:
        return "same" if shift == "same" else "undecided"
    better, worse = better_and_worse(metric.unit)
    return better if shift == metric.better else worse


def _probability_lower(tested: Tested) -> float:
    if len(tested.values):
        signs = np.sign(tested.values)
    else:
        one, two = (
            tested.values_by_run
            if tested.method == "unpaired by run"
            else (tested.baseline.logs, tested.contender.logs)
        )
        signs = np.sign(np.subtract.outer(two, one))
    return float(np.mean(signs < 0) + np.mean(signs == 0) / 2)


def _low_noise(tested: Tested) -> float | None:
    """Return the ratio of the tenth percentiles, estimated like the ratio of the medians."""
    if tested.method == "paired":
        value = paired(np.array([two.low_noise - one.low_noise for one, two in tested.pairs])).estimate
    elif tested.method == "unpaired by run":
        sides = (tested.baseline, tested.contender)
        logs = [np.array([np.median([t.low_noise for t in run]) for run in side.runs.values()]) for side in sides]
        value = welch(*logs).estimate
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
        within = [block.var(ddof=1) / len(block) for block in blocks if len(block) > 1]
        if len(blocks) > 1 and within and np.mean(within) > 0:
            ratios.append(np.var([block.mean() for block in blocks], ddof=1) / np.mean(within))
    return float(np.mean(ratios)) if ratios else None


def geometric_means(several: Sequence[tuple[Sequence[Tested], Mean]]) -> list[GeometricMean]:
    """Judge means together, each with its cases; p-values are corrected for the number of means (Holm)."""
    different = holm([mean.p_different for _, mean in several])
    same = holm([mean.p_same for _, mean in several])
    return [
        _geometric_mean(group, mean, p, p_same, len(several))
        for (group, mean), p, p_same in zip(several, different, same, strict=True)
    ]


def _geometric_mean(group: Sequence[Tested], mean: Mean, p: float, p_same: float, family: int) -> GeometricMean:
    first = group[0]
    metric = first.baseline.metric
    verdict = _verdict(judge(mean.shift, p, p_same, first.rules.alpha), metric)
    alpha = (first.alpha if mean.is_paired else first.rules.alpha) / family
    needed = None
    if verdict == "undecided" and (mean.is_paired or mean.spread):
        least = max(math.floor(mean.values) + 1, fewest(alpha, is_paired=True) if mean.is_paired else 2)
        needed = deciding(mean.shift, mean.spread or 0.0, first.margin, alpha, least, is_t=mean.method == BY_RUN)
    disturbed = provisional(
        (first.baseline.name, [each.baseline.records for each in group]),
        (first.contender.name, [each.contender.records for each in group]),
    )
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
        p_adjusted=p if mean.interval else None,
        verdict=verdict,
        provisional=_joined(disturbed, few_runs(mean.method, mean.runs)),
        execution=_execution([each.match for each in group]),
        enough=needed,
        runs=mean.runs,
        notes=[*_disturbed(disturbed), *notes_on_mean(mean, verdict, needed, alpha)],
    )


def _execution(matches: Sequence[Match]) -> str:
    """Return that one side of matches compiles its steps and the other does not; empty if both do the same."""
    sides = [side for match in matches for side in (match.baseline, match.contender)]
    return executions(side.records[0].case for side in sides)


def _joined(*reasons: str | None) -> str | None:
    return "; ".join(filter(None, reasons)) or None


def _disturbed(reason: str | None) -> list[str]:
    return [f"the verdict is provisional: {reason}; repeat them undisturbed"] if reason else []


def classical(match: Match) -> Classical | None:
    """Return the classical statistics of a match, or None if a side has no timed block."""
    blocks = [
        np.concatenate([step_times(record) for record in side.records if record.blocks] or [np.array([])])
        for side in (match.baseline, match.contender)
    ]
    if not all(map(len, blocks)):
        return None
    return Classical(
        case=dict(match.case),
        name=match.name,
        baseline=match.baseline.name,
        contender=match.contender.name,
        baseline_blocks=describe(blocks[0]),
        contender_blocks=describe(blocks[1]),
        rank_sum=rank_sum(*blocks),
    )


AfterRound = Callable[[int, Sequence[Comparison], bool], None]
"""Called after a round with its number, the comparisons so far, and whether the run may end by them."""


def round_text(rounds: int, comparisons: Sequence[Comparison], *, is_look: bool) -> str:
    """Return how things stand after some rounds; only where it is a look is there a verdict."""
    if len(comparisons) > 1:
        return f"after {count(rounds, 'round')}: {tally(comparisons)}"
    verdict = f" {comparisons[0].verdict}" if is_look else ""
    return f"after {count(rounds, 'round')}: B/A {ratio(comparisons[0])}{verdict}"


class Referee:
    """Decides after each round whether the run of so many pairs of cases ends, and records why in `ended`.

    `say` gets a line at each look. With `after_round`, that gets instead the number of each round, the comparisons so
    far, and whether the run may end by them.
    """

    def __init__(
        self,
        rules: Rules,
        derive: Derive,
        looks: Sequence[int],
        target: float | None,
        budget_s: float | None,
        say: Callable[[str], None],
        pairs: int = 1,
        after_round: AfterRound | None = None,
    ) -> None:
        self.rules, self.derive, self.looks = rules, derive, looks
        self.target, self.budget_s, self.say = target, budget_s, say
        self.after_round = after_round
        self.pairs = pairs
        self.ended = (
            f"ended after {self._rounds(looks[-1])}, the maximum; for more, start a new run with a larger --max-rounds"
        )

    def __call__(self, records: Sequence[Record]) -> bool:
        """Return whether the run ends."""
        rounds = len({record.trial for record in records})
        walls = [record.harness.wall_s / (2 if record.design.partner else 1) for record in records]
        ran = {record.design.case_number for record in records if record.error is None}
        if rounds == 2 and not any({2 * pair, 2 * pair + 1} <= ran for pair in range(self.pairs)):
            self.ended = f"ended after {self._rounds(2)} because every trial of one side failed"
            return True
        is_look = rounds in self.looks
        if is_look or self.after_round:
            comparisons = compare(matching.within(records).matches, self.rules, self.derive).comparisons
            if self.after_round:
                self.after_round(rounds, comparisons, is_look)
            else:
                self.say(round_text(rounds, comparisons, is_look=True))
            if is_look and all(0 in each.trials or self.settled(each) for each in comparisons):
                self.ended = f"ended after {self._rounds(rounds)}, {duration_text(sum(walls))}"
                return True
        if self.budget_s is not None and sum(walls) * (rounds + 1) / rounds > self.budget_s:
            self.ended = f"ended after {self._rounds(rounds)} because another would exceed --budget"
            return True
        return False

    def settled(self, comparison: Comparison) -> bool:
        """Return whether no more rounds of a comparison are needed."""
        if self.target is None or comparison.refused:
            return comparison.verdict != "undecided" or bool(comparison.refused)
        low, high = comparison.low, comparison.high
        return low is not None and high is not None and (high / low) ** 0.5 - 1 <= self.target

    def _rounds(self, number: int) -> str:
        """Return a number of rounds, and what a round is, so that notes on trials can be related to it."""
        sides = "one of A, one of B" if self.pairs == 1 else "A and B of each comparison"
        return f"{count(number, 'round')} of {2 * self.pairs} trials ({sides})"
