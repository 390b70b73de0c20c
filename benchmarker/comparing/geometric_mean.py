"""The weighted mean log ratio of several cases, with its interval and its test."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import harmonic_mean
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from benchmarker.stats.shift import paired

PAIRED = "paired by round"
WELCH = "unpaired: Welch-Satterthwaite"
RANKS = "unpaired: Mann-Whitney"
"""The method if there is a single case: it is judged like a comparison."""

if TYPE_CHECKING:
    from benchmarker.comparing.samples import Key, Tested


@dataclass(frozen=True, slots=True)
class Mean:
    """The weighted mean log ratio of cases.

    `ratio` is the geometric mean of the cases' ratios. `shift` is the tested value: in a paired test, the
    Hodges-Lehmann estimate over rounds. `interval` is on the logarithmic scale, `level` is its confidence level. The
    p-values are already scaled for looks, so they are compared with alpha directly. `values` is the number of rounds,
    or the harmonic mean of the numbers of trials; `spread` is the standard deviation of one value, as if the shift were
    a mean of that many. It is None if a side has a single trial.
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

    @property
    def is_paired(self) -> bool:
        """Whether the values are rounds."""
        return self.method == PAIRED

    @classmethod
    def of(cls, group: Sequence[Tested], weights: Sequence[float] | None = None) -> Mean:
        """Test paired if all cases are paired and share at least two rounds, unpaired otherwise; a case alone as it is.

        Every case must have a shift. Weights must be positive; only their proportions count. By default they are equal.
        """
        shares = np.ones(len(group)) if weights is None else np.array(weights, dtype=float)
        shares = shares / shares.sum()
        log = float(sum(share * each.shift.estimate for share, each in zip(shares, group, strict=True) if each.shift))
        keys = set.intersection(*(set(each.differences) for each in group))
        if len(keys) > 1 and all(each.method == "paired" for each in group):
            return _paired(group, shares, log, sorted(keys))
        found = _unpaired(group, shares, log)
        return _alone(group[0], found) if len(group) == 1 else found


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


def _unpaired(group: Sequence[Tested], shares: np.ndarray, log: float) -> Mean:
    """Compute a t interval; the variance of a case's mean log ratio is that of two independent samples.

    The degrees of freedom are those of Welch and Satterthwaite (Welch, Biometrika 34, 1947). There is no interval if
    a side has a single trial.
    """
    first = group[0]
    level = 1 - first.rules.alpha
    sides = [sample.logs for each in group for sample in (each.baseline, each.contender)]
    parts = np.array([logs.var(ddof=1) / len(logs) if len(logs) > 1 else np.nan for logs in sides])
    parts *= np.repeat(shares, 2) ** 2
    error = math.sqrt(parts.sum())
    values = harmonic_mean([len(logs) for logs in sides])
    if not error > 0:
        return Mean(WELCH, math.exp(log), log, None, level, 1.0, 1.0, values, None if math.isnan(error) else 0.0)
    freedom = parts.sum() ** 2 / sum(part**2 / (len(logs) - 1) for part, logs in zip(parts, sides, strict=True))
    half = float(special.stdtrit(freedom, (1 + level) / 2)) * error
    return Mean(
        WELCH,
        math.exp(log),
        log,
        (log - half, log + half),
        level,
        2 * float(special.stdtr(freedom, -abs(log) / error)),
        float(special.stdtr(freedom, (abs(log) - first.margin) / error)),
        values,
        error * math.sqrt(values),
    )
