"""The values of two sides' trials to be tested: paired by round if they share their runs, unpaired otherwise.

Trials of one run share whatever the machine was like during it. Unpaired sides of several runs are therefore compared
run by run: a run is one value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from benchmarker.comparing.results import Method, Rules
from benchmarker.records.record import Location, location
from benchmarker.records.step_times import STEP_TIME, step_times
from benchmarker.stats.shift import Shift, paired, unpaired
from benchmarker.stats.verdict import share
from benchmarker.stats.welch import MeanShift, welch

if TYPE_CHECKING:
    from benchmarker.comparing.matching import Match
    from benchmarker.hooks.metrics import Derive
    from benchmarker.records.record import Record
    from benchmarker.records.sides import Side

Key = tuple[str, int, Location]
"""A round: its run id, its number in that run, and where it was measured; a round that was cut is two."""
Run = tuple[str, int]
"""A run: its id, and which of its sessions; each session of a run that is spread over time counts as a run."""
LOW_NOISE = "step_time_p10_s"


@dataclass(frozen=True, slots=True)
class Trial:
    """A trial with a value of the metric: the logarithms of the value and of the tenth percentile of step times."""

    record: Record
    log: float
    low_noise: float

    @property
    def round(self) -> Key:
        """The round of the trial."""
        record = self.record
        return record.run_id, record.trial, location(record.machine.host, record.allocation)

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
            metric = metrics.get(rules.metric)
            if metric is None or metric.value is None or metric.value <= 0:
                self.lacking.append((metric and metric.reason) or "its value is not above 0")
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

    def block_logs(self) -> np.ndarray:
        """Return the logarithms of the step times, s, of all timed blocks."""
        logs: np.ndarray = np.log(np.concatenate([step_times(record) for record in self.records]))
        return logs


class Tested:
    """One match with its test, before the verdict; `shift` is that of the logarithm, or None if a side has no value."""

    def __init__(self, match: Match, rules: Rules, derive: Derive) -> None:
        self.match, self.rules = match, rules
        self.baseline, self.contender = (Sample(side, rules, derive) for side in (match.baseline, match.contender))
        self.differences: dict[Key, float] = {}
        self.shift: Shift | MeanShift | None = None
        self.method: Method = "none"
        a, b = self.baseline, self.contender
        if not a.records or not b.records:
            return
        common = sorted(a.rounds.keys() & b.rounds.keys())
        if rules.blocks_as_trials:
            self.shift = unpaired(a.block_logs(), b.block_logs())
            self.method = "blocks of one process as if independent"
        elif 2 * len(common) >= min(len(a.logs), len(b.logs)):
            self.differences = {key: self._difference(a.rounds[key], b.rounds[key]) for key in common}
            self.shift = paired(np.array(list(self.differences.values())))
            self.method = "paired" if len(common) > 1 else "none"
        elif max(len(a.runs), len(b.runs)) > 1:
            self.shift = welch(*self.values_by_run)
            self.method = "unpaired by run"
        else:
            self.shift = unpaired(a.logs, b.logs)
            self.method = "unpaired" if min(len(a.logs), len(b.logs)) > 1 else "none"

    def _difference(self, one: Trial, two: Trial) -> float:
        """Return the log ratio of a round; in a duet, the median over pairs, which are closer in time."""
        if two.record.design.partner == one.record.trial_id and self.rules.metric == STEP_TIME:
            return float(np.median(np.log(step_times(two.record) / step_times(one.record))))
        return two.log - one.log

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
