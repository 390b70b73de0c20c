"""The weighted mean log ratio of several cases, with its interval and its test."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import harmonic_mean
from typing import TYPE_CHECKING

import numpy as np

from benchmarker.stats.shift import paired
from benchmarker.stats.welch import MeanShift, combined, welch

PAIRED = "paired by round"
WELCH = "unpaired: Welch-Satterthwaite"
RANKS = "unpaired: Mann-Whitney"
"""The method if there is a single case: it is judged like a comparison."""
OF_PAIRED = "of cases that are paired each by its own rounds: Welch-Satterthwaite"
BY_RUN = "unpaired by run: Welch-Satterthwaite"
T_TESTS = (WELCH, OF_PAIRED, BY_RUN)
_UNITS = {PAIRED: "rounds", BY_RUN: "runs per side"}

if TYPE_CHECKING:
    from benchmarker.comparing.samples import Key, Sample, Tested


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
        found = _of_cases(group, shares, log)
        return _alone(group[0], found) if len(group) == 1 else found


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
