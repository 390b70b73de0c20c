"""Confidence intervals of quantiles and shares of values that may depend on those before them; prediction bounds.

Requests that wait in one queue have similar latencies, so n of them say less than n independent ones. How much less is
the *design effect*: the variance of the mean of a batch of successive values over that of as many independent ones. It
is estimated for what is asked, whether a value is below a limit, and for the ranks of the values, and the larger is
taken: in a short time, few clusters of slow requests are seen, and their own scatter says little. n over the design
effect is the effective number of values, with which the exact intervals for independent ones are used.

Sources: batches: Schmeiser, Batch size effects in the analysis of simulation output, Oper. Res. 30 (1982). Intervals of
quantiles from those of shares: Woodruff, J. Am. Stat. Assoc. 47 (1952). Effective numbers in exact intervals, and their
correction by Student's t: Korn & Graubard, Survey Methodology 24 (1998).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from benchmarker.stats.steady import ranks

LEVEL = 0.95
BATCHES = 10


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with the ends of its 95% confidence interval; None for an end that the values do not bound."""

    value: float
    low: float | None
    high: float | None


def quantile(values: np.ndarray, share: float) -> Estimate:
    """Return the smallest value that at least `share` of the values do not exceed, with its interval.

    The values are in order of time; some may be infinite. Raises ValueError if there is none.
    """
    n = len(values)
    if n == 0:
        raise ValueError("no value has no quantile")
    ordered = np.sort(values)
    value = float(ordered[max(0, math.ceil(n * share - 1e-9) - 1)])
    effective = _effective(values <= value, values)
    counts = np.arange(effective + 1)
    below = special.bdtr(counts, effective, share)  # P(at most so many values are below the true quantile)
    tail = (1 - LEVEL) / 2
    first = int(np.searchsorted(below, tail, side="right"))  # the quantile is above as many values, or more
    last = int(np.searchsorted(below, 1 - tail, side="left")) + 1
    low = float(ordered[first * n // effective - 1]) if first else None
    high = float(ordered[-(-last * n // effective) - 1]) if last <= effective else None
    return Estimate(value, low, high)


def share(met: np.ndarray, values: np.ndarray) -> Estimate:
    """Return the share of True, with its interval.

    `values` are the latencies on which that depends; both are in order of time. Raises ValueError if there is none.
    """
    n = len(met)
    if n == 0:
        raise ValueError("no value has no share")
    value, effective = float(np.mean(met)), _effective(met, values)
    return Estimate(value, *binomial_interval(value * effective, effective))


def binomial_interval(count: float, n: int) -> tuple[float, float]:
    """Return the exact interval of a share of which `count` of `n` independent values were seen.

    Source: Clopper & Pearson, Biometrika 26 (1934).
    """
    tail = (1 - LEVEL) / 2
    low = float(special.betaincinv(count, n - count + 1, tail)) if count > 0 else 0.0
    high = float(special.betaincinv(count + 1, n - count, 1 - tail)) if count < n else 1.0
    return low, high


def _effective(met: np.ndarray, values: np.ndarray) -> int:
    """Return the effective number of values; all if there are few, or if none depends on those before it."""
    n, tail = len(met), (1 - LEVEL) / 2
    effect = max(_design_effect(met.astype(float)), _design_effect(ranks(values)))
    if effect <= 1:
        return n
    correction = float(special.stdtrit(BATCHES - 1, tail) / special.ndtri(tail)) ** 2
    return max(1, math.floor(n / (effect * correction)))


def _design_effect(values: np.ndarray) -> float:
    """Return the variance of the means of batches over that of the means of independent values; 1 for few values."""
    n, variance = len(values), float(np.var(values))
    if n < 2 * BATCHES or variance == 0:
        return 1.0
    edges = np.linspace(0, n, BATCHES + 1).astype(int)
    means = np.add.reduceat(values, edges[:-1]) / np.diff(edges)
    return float(np.var(means, ddof=1)) * n / BATCHES / variance


def median_allowance(values: Sequence[float], alpha: float) -> float:
    """Return the distance below the median of n values that the median of n new ones exceeds with probability `alpha`.

    The allowance is t * s * sqrt(pi/2 * (1/n + 1/n)), with the standard deviation s of the values and the quantile t of
    Student's distribution at 1 - alpha with n - 1 degrees of freedom. It is the one-sided prediction bound of a mean of
    n new values (Meeker, Hahn & Escobar, Statistical Intervals, 2nd edition, 2017, section 4.8), in which the variance
    of each mean is multiplied by pi/2. That is the variance of a median of many normal values relative to that of their
    mean, and more than that of few (David & Nagaraja, Order Statistics, 2003, chapter 10), so the bound is on the safe
    side. The values are assumed to be normal. Raises ValueError for fewer than two values.
    """
    n = len(values)
    if n < 2:
        raise ValueError("a single value shows no scatter")
    spread = float(np.std(values, ddof=1))
    return float(special.stdtrit(n - 1, 1 - alpha)) * spread * math.sqrt(math.pi / 2 * (2 / n))
