"""Check whether a trial's timed blocks are steady, still warming up, or change level."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from benchmarker.stats.shift import rank_sum_null

MIN_BLOCKS = 22
"""Fewer blocks cannot reach a p-value as small as `CERTAINTY`."""
CERTAINTY = 1e-3
"""Largest p-value of a change; it is strict because blocks of one process are dependent, so p-values are too small."""
FIRST = (3, 5, 8, 12)
"""Numbers of blocks at the beginning that may be a short warm-up."""
LAST = (5, 8, 12)
"""Numbers of blocks at the end that may have another level; fewer are no level, but a disturbance."""
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
    for search in (_change_point, _near_an_end):
        if (after := search(durations)) is not None:
            share = float(np.median(durations[after:]) / np.median(durations[:after])) - 1
            if abs(share) >= CHANGE:
                return Change(after, share, warmup=share < 0 and after <= n / 2)
    return None


def _change_point(durations: np.ndarray) -> int | None:
    """Return where the level changes, except near an end; a trend appears as a change near the middle.

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


def _near_an_end(durations: np.ndarray) -> int | None:
    """Return where the level changes, if it is too near an end for a change point.

    First blocks may be slower than the rest, last ones slower or faster. All these tests together have the p-value
    `CERTAINTY` (Bonferroni).
    """
    logs = np.log(durations)
    n, backwards = len(logs), logs[::-1]
    found = _slower(logs, FIRST)
    found += [(p, n - last) for towards in (backwards, -backwards) for p, last in _slower(towards, LAST)]
    p_value, after = min(found)
    return after if p_value <= CERTAINTY / len(found) else None


def _slower(logs: np.ndarray, numbers: Sequence[int]) -> list[tuple[float, int]]:
    """Return the p-values of the first 3, 5, ... blocks not being slower than the rest by `CHANGE`, by rank sums."""
    n, slower = len(logs), logs[: max(numbers)] - logs[:, None] > math.log1p(CHANGE)  # [rest, first]
    return [
        (rank_sum_null(n - first, first).cdf(first * (n - first) - int(slower[first:, :first].sum())), first)
        for first in numbers
    ]
