"""The values of two sides' trials to be tested, of one case and over several: by round if they share runs, or unpaired.

Trials of one run share whatever the machine was like during it. Unpaired sides of several runs are therefore compared
run by run: a run is one value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import harmonic_mean

import numpy as np

from benchmarker.api.program import START_TIME, is_program, mostly_started
from benchmarker.comparing.matching import Match
from benchmarker.comparing.results import Method, Rules
from benchmarker.formatting import part
from benchmarker.hooks.metrics import Derive, metric_of
from benchmarker.records.record import Location, Record, location
from benchmarker.records.sides import Side
from benchmarker.records.step_times import STEP_TIME, step_times
from benchmarker.stats.shift import Shift, paired, unpaired
from benchmarker.stats.verdict import share
from benchmarker.stats.welch import MeanShift, combined, welch

Key = tuple[str, int, Location]
"""A round: its run id, its number in that run, and where it was measured; a round that was cut is two."""
Run = tuple[str, int]
"""A run: its id, and which of its sessions; each session of a run that is spread over time counts as a run."""
OF_FLOPS = ("flop_per", "mfu", "roof_share")
"""What the names of metrics that are made of FLOPs begin with."""
OF_TIMES = ("step_time", "samples_per_s")
"""What the names of metrics begin with that the start of a process is a part of."""
BLOCK_GROUPS = 20
"""Groups of successive pairs of blocks, each of which is a value if one process measured both sides."""
LOW_NOISE = "step_time_p10_s"
PAIRED = "paired by round"
WELCH = "unpaired: Welch-Satterthwaite"
RANKS = "unpaired: Mann-Whitney"
"""The method if there is a single case: it is judged like a comparison."""
OF_PAIRED = "of cases that are paired each by its own rounds: Welch-Satterthwaite"
BY_RUN = "unpaired by run: Welch-Satterthwaite"
T_TESTS = (WELCH, OF_PAIRED, BY_RUN)
_UNITS = {PAIRED: "rounds", BY_RUN: "runs per side"}


def round_of(record: Record) -> Key:
    """Return the round of a trial."""
    return record.run_id, record.trial, location(record.machine.host, record.allocation)


@dataclass(frozen=True, slots=True)
class Trial:
    """A trial with a value of the metric: the logarithms of the value and of the tenth percentile of step times."""

    record: Record
    log: float
    low_noise: float

    @property
    def round(self) -> Key:
        """The round of the trial."""
        return round_of(self.record)

    @property
    def run(self) -> Run:
        """The run of the trial."""
        return self.record.run_id, self.record.design.session


class Sample:
    """The trials of one side that have a value of the metric; `lacking` holds the reasons why others have none."""

    def __init__(self, side: Side, rules: Rules, derive: Derive) -> None:
        self.name = side.name
        self.all = side.records
        found = [(record, derive(record)) for record in side.records]
        self.metric = next((metrics[rules.metric] for _, metrics in found if rules.metric in metrics), None)
        self.trials: list[Trial] = []
        self.lacking: list[str] = []
        for record, metrics in found:
            if record.error is not None:
                continue
            metric = metric_of(record, rules.metric, metrics)
            if metric.value is None or metric.value <= 0:
                self.lacking.append(metric.reason or "its value is not above 0")
            else:
                low_noise = metrics[LOW_NOISE].value if LOW_NOISE in metrics else None
                self.trials.append(Trial(record, math.log(metric.value), math.log(low_noise or math.nan)))
        self.records = [trial.record for trial in self.trials]
        self.logs = np.array([trial.log for trial in self.trials])
        rounds = {trial.round: trial for trial in self.trials}
        self.rounds = rounds if len(rounds) == len(self.trials) else {}
        """Trials by round; empty if a round contains several."""
        self.runs: dict[Run, list[Trial]] = {}
        for trial in self.trials:
            self.runs.setdefault(trial.run, []).append(trial)

    @cached_property
    def median(self) -> float | None:
        """The median over trials."""
        return float(np.median(np.exp(self.logs))) if len(self.logs) else None

    @cached_property
    def run_logs(self) -> dict[Run, float]:
        """The median over the trials of each run, of the logarithms of their values."""
        return {run: float(np.median([trial.log for trial in trials])) for run, trials in self.runs.items()}

    def missing(self, metric: str) -> str:
        """Return how many trials have no value of the metric, and why the first has none; empty if all have one."""
        if not self.lacking:
            return ""
        some = part(len(self.lacking), len(self.all), "trial", "has no", "have no")
        return f"{self.name}: {some if self.trials else 'no trial has a'} {metric}: {self.lacking[0]}"

    def block_logs(self) -> np.ndarray:
        """Return the logarithms of the step times, s, of all timed blocks."""
        logs: np.ndarray = np.log(np.concatenate([step_times(record) for record in self.records]))
        return logs


def _start_s(record: Record) -> float:
    """Return the shortest time of an empty program, s; 0 if the start of a process is not timed."""
    values = [value for figure in record.figures if figure.name == START_TIME for value in figure.values]
    return min(values, default=0.0) if is_program(record.case.problem) else 0.0


class Tested:
    """One match with its test, before the verdict; `shift` is that of the logarithm, or None if a side has no value."""

    def __init__(self, match: Match, rules: Rules, derive: Derive) -> None:
        self.match, self.rules = match, rules
        self.baseline, self.contender = (Sample(side, rules, derive) for side in (match.baseline, match.contender))
        self.differences: dict[Key, float] = {}
        self.values = np.array([])
        """The differences that are tested, if they are paired."""
        self.shift: Shift | MeanShift | None = None
        self.method: Method = "none"
        a, b = self.baseline, self.contender
        if not a.records or not b.records or self.counted_by or self.mostly_started:
            return
        common = sorted(a.rounds.keys() & b.rounds.keys())
        if rules.blocks_as_trials:
            self.shift = unpaired(a.block_logs(), b.block_logs())
            self.method = "blocks of one process as if independent"
        elif 2 * len(common) >= min(len(a.logs), len(b.logs)):
            self.differences = {key: self._difference(a.rounds[key], b.rounds[key]) for key in common}
            by_block = self._by_block(common)
            self.values = np.array(list(self.differences.values())) if by_block is None else by_block
            self.shift = paired(self.values)
            self.method = "paired" if len(common) > 1 else "none" if by_block is None else "paired by block"
        elif max(len(a.runs), len(b.runs)) > 1:
            self.shift = welch(*self.values_by_run)
            self.method = "unpaired by run"
        else:
            self.shift = unpaired(a.logs, b.logs)
            self.method = "unpaired" if min(len(a.logs), len(b.logs)) > 1 else "none"

    @property
    def counted_by(self) -> list[str]:
        """What tells the FLOPs of each side, if the metric is made of FLOPs and they are counted differently."""
        if not self.rules.metric.startswith(OF_FLOPS):
            return []
        sides = {each.name: each.records[0].cost for each in (self.baseline, self.contender) if each.records}
        words = {name: cost.source for name, cost in sides.items() if cost and cost.source}
        return [f"{name} by {source}" for name, source in words.items()] if len(set(words.values())) > 1 else []

    @property
    def mostly_started(self) -> str:
        """Why times of programs cannot be compared: starting a process is most of those of a side; else empty."""
        if not self.rules.metric.startswith(OF_TIMES):
            return ""
        for each in (self.baseline, self.contender):
            starts = [(min(step_times(record)), empty_s) for record in each.records if (empty_s := _start_s(record))]
            if starts and (text := mostly_started(*map(min, zip(*starts, strict=True)))):
                return f"{each.name}: {text}"
        return ""

    def _difference(self, one: Trial, two: Trial) -> float:
        """Return the log ratio of a round; in a duet, the median over pairs, which are closer in time."""
        if two.record.design.partner == one.record.trial_id and self.rules.metric == STEP_TIME:
            return float(np.median(np.log(step_times(two.record) / step_times(one.record))))
        return two.log - one.log

    def _by_block(self, common: Sequence[Key]) -> np.ndarray | None:
        """Return the log ratios of a pair of trials of one process of the user, each the median over successive blocks.

        Successive blocks are alike, so each is no value of its own. None if there are other trials.
        """
        if len(common) != 1 or self.rules.metric != STEP_TIME:
            return None
        one, two = self.baseline.rounds[common[0]].record, self.contender.rounds[common[0]].record
        if not (one.design.in_process and two.design.in_process and two.design.partner == one.trial_id):
            return None
        ratios = np.log(step_times(two) / step_times(one))
        return np.array([np.median(group) for group in np.array_split(ratios, min(BLOCK_GROUPS, len(ratios)))])

    @property
    def pairs(self) -> list[tuple[Trial, Trial]]:
        """The two trials of each compared round, in order of time."""
        return [(self.baseline.rounds[key], self.contender.rounds[key]) for key in self.differences]

    @property
    def values_by_run(self) -> tuple[np.ndarray, np.ndarray]:
        """The logarithms of both sides, one for each run."""
        one, two = (np.array(list(side.run_logs.values())) for side in (self.baseline, self.contender))
        return one, two

    @property
    def test(self) -> Shift | MeanShift | None:
        """The shift if it can be tested; None if a side has fewer than two processes."""
        return None if self.method == "none" else self.shift

    @cached_property
    def looks(self) -> list[int]:
        """Numbers of rounds after which the run could stop; empty if it could not, or if the test is not paired."""
        looks = [record.design.looks for record in self.contender.records if record.design.looks]
        return looks[0] if looks and self.method == "paired" else []

    @property
    def alpha(self) -> float:
        """The significance level of this one test, which is a share of α if there are several looks."""
        return share(self.rules.alpha, self.looks)

    @property
    def margin(self) -> float:
        """The largest shift that counts as no difference."""
        return math.log1p(self.rules.delta)

    @property
    def p_different(self) -> float:
        """p-value of a difference, scaled so that it is compared with α, with or without looks."""
        return min(1.0, self.test.p_different * self.rules.alpha / self.alpha) if self.test else 1.0

    @property
    def p_same(self) -> float:
        """p-value of equivalence, scaled in the same way."""
        return min(1.0, self.test.p_within(self.margin) * self.rules.alpha / self.alpha) if self.test else 1.0


@dataclass(frozen=True, slots=True)
class Mean:
    """The weighted mean log ratio of cases.

    `ratio` is the geometric mean of the cases' ratios. `shift` is the tested value: in a paired test, the
    Hodges-Lehmann estimate over rounds. `interval` is on the logarithmic scale, `level` is its confidence level. The
    p-values are already scaled for looks, so they are compared with alpha directly. `values` is the number of rounds,
    or the harmonic mean of the numbers of trials or runs; `spread` is the standard deviation of one value, as if the
    shift were a mean of that many. It is None if a side has a single trial. `runs` are the numbers of runs of the
    sides; if they are the unit, of those that have a value of every case.
    """

    method: str
    ratio: float
    shift: float
    interval: tuple[float, float] | None
    level: float
    p_different: float
    p_same: float
    values: float
    spread: float | None
    runs: tuple[int, int]

    @property
    def is_paired(self) -> bool:
        """Whether the values are rounds."""
        return self.method == PAIRED

    @property
    def unit(self) -> str:
        """What is counted, as text."""
        return _UNITS.get(self.method, "trials per side")

    @classmethod
    def of(cls, group: Sequence[Tested], weights: Sequence[float] | None = None) -> Mean:
        """Test paired if all cases are paired and share at least two rounds, unpaired otherwise; a case alone as it is.

        Unpaired sides are tested run by run if one has several runs with a value of every case. Every case must have a
        shift. Weights must be positive; only their proportions count. By default they are equal.
        """
        shares = np.ones(len(group)) if weights is None else np.array(weights, dtype=float)
        shares = shares / shares.sum()
        log = float(sum(share * each.shift.estimate for share, each in zip(shares, group, strict=True) if each.shift))
        if all(each.method == "paired" for each in group):
            keys = set.intersection(*(set(each.differences) for each in group))
            return _paired(group, shares, log, sorted(keys)) if len(keys) > 1 else _of_cases(group, shares, log)
        one, two = (_by_run([getattr(each, side) for each in group], shares) for side in ("baseline", "contender"))
        if max(len(one), len(two)) > 1 and min(len(one), len(two)) > 0:
            return _of_shift(group[0], BY_RUN, log, welch(one, two), (len(one), len(two)))
        mean = _of_cases(group, shares, log)
        return _alone(group[0], mean) if len(group) == 1 else mean


def _by_run(samples: Sequence[Sample], shares: np.ndarray) -> np.ndarray:
    """Return the weighted mean over the cases of one side for each run that has all of them.

    Cases of one run share what the machine was like during it, so their errors do not average out between them.
    """
    runs = set.intersection(*(set(sample.run_logs) for sample in samples))
    return np.array([float(shares @ [sample.run_logs[run] for sample in samples]) for run in sorted(runs)])


def _of_shift(first: Tested, method: str, log: float, shift: MeanShift, runs: tuple[int, int]) -> Mean:
    """Return the mean whose test is a t test of the shift."""
    level, values = 1 - first.rules.alpha, harmonic_mean(shift.sizes)
    return Mean(
        method,
        math.exp(log),
        shift.estimate,
        shift.interval(level),
        level,
        shift.p_different,
        shift.p_within(first.margin),
        values,
        None if math.isnan(shift.error) else shift.error * math.sqrt(values),
        runs,
    )


def _paired(group: Sequence[Tested], shares: np.ndarray, log: float, keys: Sequence[Key]) -> Mean:
    """Test the mean log ratio over the cases, one value per round, like the rounds of a single comparison."""
    first = group[0]
    values = np.array([float(shares @ [each.differences[key] for each in group]) for key in keys])
    shift = paired(values)
    scale = first.rules.alpha / first.alpha
    return Mean(
        PAIRED,
        math.exp(log),
        shift.estimate,
        shift.interval(1 - first.alpha),
        1 - first.alpha,
        min(1.0, shift.p_different * scale),
        min(1.0, shift.p_within(first.margin) * scale),
        len(values),
        float(values.std(ddof=1)),
        _runs(group),
    )


def _alone(case: Tested, found: Mean) -> Mean:
    """Return the mean of one unpaired case: its own test, so that one fact has one interval and one verdict."""
    if case.test is None:
        return found
    return replace(
        found,
        method=RANKS,
        interval=case.test.interval(found.level),
        p_different=case.test.p_different,
        p_same=case.test.p_within(case.margin),
    )


def _of_cases(group: Sequence[Tested], shares: np.ndarray, log: float) -> Mean:
    """Compute a t interval; the variance of a case's mean log ratio is that of two independent samples.

    There is no interval if a side has a single trial.
    """
    sides = [sample.logs for each in group for sample in (each.baseline, each.contender)]
    parts = np.array([logs.var(ddof=1) / len(logs) if len(logs) > 1 else np.nan for logs in sides])
    sizes = [len(logs) for logs in sides]
    shift = MeanShift(log, *combined(parts * np.repeat(shares, 2) ** 2, sizes), tuple(sizes))
    method = OF_PAIRED if all(each.method == "paired" for each in group) else WELCH
    return _of_shift(group[0], method, log, shift, _runs(group))


def _runs(group: Sequence[Tested]) -> tuple[int, int]:
    """Return the number of runs of each side."""
    one, two = ({run for each in group for run in getattr(each, side).runs} for side in ("baseline", "contender"))
    return len(one), len(two)
