"""Whether a trial's timed blocks stand still, or still warm up, or change their level."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

MIN_BLOCKS = 20
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

    The point is where Pettitt's statistic is largest, his approximation the p-value; the size is the ratio of the
    medians after and before. A trend shows as a change near the middle.
    Source: Pettitt, A non-parametric approach to the change-point problem, Appl. Statist. 28 (1979).
    """
    n = len(durations)
    if n < MIN_BLOCKS:
        return None
    ranks = stats.rankdata(durations)
    statistic = 2 * np.cumsum(ranks)[:-1] - np.arange(1, n) * (n + 1)
    after = int(np.argmax(np.abs(statistic))) + 1
    p_value = 2 * math.exp(-6 * float(statistic[after - 1]) ** 2 / (n**3 + n**2))
    share = float(np.median(durations[after:]) / np.median(durations[:after])) - 1
    if p_value > CERTAINTY or abs(share) < CHANGE:
        return None
    return Change(after, share, warmup=share < 0 and after <= n / 2)
