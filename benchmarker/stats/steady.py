"""Check whether a trial's timed blocks are steady, still warming up, or change level."""

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from benchmarker.stats.shift import rank_sum_null

MIN_BLOCKS = 22
"""Fewer blocks cannot reach a p-value as small as `CERTAINTY`."""
CERTAINTY = 1e-3
"""Largest p-value of a change; it is strict because blocks of one process are dependent, so p-values are too small."""
SHORT = (3, 6, 12)
"""Numbers of blocks at the beginning that may be a short warm-up."""
CHANGE = 0.02
"""Smallest change that is reported, as a share; no verdict would call a smaller one a difference."""


@dataclass(frozen=True, slots=True)
class Change:
    """The level of the step time changes by `share` after `after` blocks; a warm-up is an early decrease."""

    after: int
    share: float
    warmup: bool


def change(durations: np.ndarray) -> Change | None:
    """Return the change of level in a series of block durations; None if the series is steady or too short."""
    n = len(durations)
    if n < MIN_BLOCKS:
        return None
    after = _change_point(durations) or _short_warmup(durations)
    if after is None:
        return None
    share = float(np.median(durations[after:]) / np.median(durations[:after])) - 1
    return Change(after, share, warmup=share < 0 and after <= n / 2) if abs(share) >= CHANGE else None


def _change_point(durations: np.ndarray) -> int | None:
    """Return where the level changes, except near the ends; a trend appears as a change near the middle.

    The p-value is Pettitt's approximation for his statistic, the largest of the sums of signs between before and after.
    The change point is where the ranks before and after differ most clearly, by least squares, because the largest sum
    is too near the middle. Source: Pettitt, A non-parametric approach to the change-point problem, Appl. Statist. 28
    (1979).
    """
    n = len(durations)
    before = np.arange(1, n)
    signs = np.abs(2 * np.cumsum(ranks(durations))[:-1] - before * (n + 1))
    if 2 * math.exp(-6 * float(signs.max()) ** 2 / (n**3 + n**2)) > CERTAINTY:
        return None
    return int(np.argmax(signs**2 / (before * (n - before)))) + 1


def trend(levels: np.ndarray) -> float:
    """Return the p-value of a trend in three or more values: that of Spearman's correlation with their order.

    It is two-sided, by Student's t. Values that are all equal have no trend. `scipy.stats.spearmanr` takes thirty times
    as long.
    """
    n = len(levels)
    order, ranked = np.arange(n) - (n - 1) / 2, ranks(levels) - (n + 1) / 2
    product, scale = float(order @ ranked), math.sqrt(float(order @ order) * float(ranked @ ranked))
    if abs(product) >= scale:
        return 0.0 if scale else 1.0
    correlation = product / scale
    t = abs(correlation) * math.sqrt((n - 2) / (1 - correlation**2))
    return 2 * float(special.stdtr(n - 2, -t))


def ranks(values: np.ndarray) -> np.ndarray:
    """Return the rank of each value, from 1; tied values share the mean of their ranks."""
    ordered = np.sort(values)
    ranked: np.ndarray = (np.searchsorted(ordered, values) + np.searchsorted(ordered, values, side="right") + 1) / 2
    return ranked


def _short_warmup(durations: np.ndarray) -> int | None:
    """Return the number of first blocks that are slower than the rest, if they are too few for a change point."""
    logs = np.log(durations)
    n, slower = len(logs), logs[: max(SHORT)] - logs[:, None] > math.log1p(CHANGE)  # [rest, first]
    p_values = {
        first: rank_sum_null(n - first, first).cdf(first * (n - first) - int(slower[first:, :first].sum()))
        for first in SHORT
    }
    first = min(p_values, key=lambda each: p_values[each])
    return first if p_values[first] <= CERTAINTY / len(SHORT) else None
