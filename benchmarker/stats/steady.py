"""Whether a trial's timed blocks stand still, or still warm up, or change their level."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

MIN_BLOCKS = 22
"""Fewer blocks reach no p-value as small as `CERTAINTY`, whatever they do."""
CERTAINTY = 1e-3
"""Largest p-value of the change: blocks of one process are not independent, which makes p-values too small."""
CHANGE = 0.02
"""Smallest change that is told, as a share: what no verdict would call a difference need not be told."""


@dataclass(frozen=True, slots=True)
class Change:
    """The level of the step time changes by `share` after `after` blocks; a warm-up is a fall early on."""

    after: int
    share: float
    warmup: bool


def change(durations: np.ndarray) -> Change | None:
    """The change point of a series of block durations, or None where it stands still or is short.

    The p-value is Pettitt's approximation for his statistic, the largest of the sums of signs between before and after.
    The point is where the ranks before and after differ most clearly, by least squares: the largest sum itself lies too
    near the middle. The size is the ratio of the medians after and before. A trend shows as a change near the middle.
    Source: Pettitt, A non-parametric approach to the change-point problem, Appl. Statist. 28 (1979).
    """
    n = len(durations)
    if n < MIN_BLOCKS:
        return None
    before = np.arange(1, n)
    signs = np.abs(2 * np.cumsum(stats.rankdata(durations))[:-1] - before * (n + 1))
    p_value = 2 * math.exp(-6 * float(signs.max()) ** 2 / (n**3 + n**2))
    after = int(np.argmax(signs**2 / (before * (n - before)))) + 1
    share = float(np.median(durations[after:]) / np.median(durations[:after])) - 1
    if p_value > CERTAINTY or abs(share) < CHANGE:
        return None
    return Change(after, share, warmup=share < 0 and after <= n / 2)
