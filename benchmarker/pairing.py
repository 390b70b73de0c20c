"""Two sides' trials as values to be tested: paired by block where they share their runs, unpaired otherwise."""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from benchmarker.comparison import STEP_TIME, Method, Rules
from benchmarker.stats.sequential import share
from benchmarker.stats.shift import Shift, paired, unpaired

if TYPE_CHECKING:
    from benchmarker.matching import Match, Side
    from benchmarker.metrics import Derive
    from benchmarker.record import Record

Key = tuple[str, int]
"""A block: its run, and its number there."""
LOW_NOISE = "step_time_p10_s"


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


class Tested:
    """One match with its test, before the verdict; `shift` is that of the logarithm, None where a side has no value."""

    def __init__(self, match: Match, rules: Rules, derive: Derive) -> None:
        self.match, self.rules = match, rules
        self.baseline, self.contender = (Sample(side, rules, derive) for side in (match.baseline, match.contender))
        self.differences: dict[Key, float] = {}
        self.shift: Shift | None = None
        self.method: Method = "none"
        a, b = self.baseline, self.contender
        if not a.records or not b.records:
            return
        common = a.trials.keys() & b.trials.keys()
        if rules.blocks_as_trials:
            self.shift = unpaired(a.block_logs(), b.block_logs())
            self.method = "blocks of one process as if independent"
        elif a.runs == b.runs and common:
            self.differences = {key: self._difference(key) for key in sorted(common)}
            self.shift = paired(np.array(list(self.differences.values())))
            self.method = "paired" if len(common) > 1 else "none"
        else:
            self.shift = unpaired(a.logs, b.logs)
            self.method = "unpaired" if min(len(a.logs), len(b.logs)) > 1 else "none"

    def _difference(self, key: Key) -> float:
        """Log ratio of a block; in a duet the median over pairs, which are closer in time than the trials are."""
        (one, first), (two, second) = self.baseline.trials[key], self.contender.trials[key]
        if two.design.partner == one.trial_id and self.rules.metric == STEP_TIME:
            return float(np.median(np.log(step_times(two) / step_times(one))))
        return second - first

    @property
    def test(self) -> Shift | None:
        """The shift where it can be tested; None where a side is a single process, or none."""
        return None if self.method == "none" else self.shift

    @cached_property
    def looks(self) -> list[int]:
        """Numbers of blocks at which the run could stop; empty where the verdict is not one of such a run."""
        looks = [record.design.looks for record in self.contender.records if record.design.looks]
        return looks[0] if looks and self.method == "paired" else []

    @property
    def alpha(self) -> float:
        """The chance of a false claim that this one test may have."""
        return share(self.rules.alpha, self.looks)

    @property
    def margin(self) -> float:
        """The largest shift that counts as none."""
        return math.log1p(self.rules.delta)

    @property
    def p_different(self) -> float:
        """p-value of a difference, scaled so that it is held against alpha, looks or none."""
        return min(1.0, self.test.p_different * self.rules.alpha / self.alpha) if self.test else 1.0

    @property
    def p_same(self) -> float:
        """p-value of equivalence, scaled likewise."""
        return min(1.0, self.test.p_within(self.margin) * self.rules.alpha / self.alpha) if self.test else 1.0
