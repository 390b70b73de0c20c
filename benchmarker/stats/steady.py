"""Check whether a trial's timed blocks are steady, still warming up, or change level."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from benchmarker.stats.shift import unpaired

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
    ordered = np.sort(durations)
    ranks = (np.searchsorted(ordered, durations) + np.searchsorted(ordered, durations, side="right") + 1) / 2
    signs = np.abs(2 * np.cumsum(ranks)[:-1] - before * (n + 1))
    if 2 * math.exp(-6 * float(signs.max()) ** 2 / (n**3 + n**2)) > CERTAINTY:
        return None
    return int(np.argmax(signs**2 / (before * (n - before)))) + 1


def _short_warmup(durations: np.ndarray) -> int | None:
    """Return the number of first blocks that are slower than the rest, if they are too few for a change point."""
    logs = np.log(durations)
    p_values = {first: unpaired(logs[first:], logs[:first]).p_above(math.log1p(CHANGE)) for first in SHORT}
    first = min(p_values, key=lambda each: p_values[each])
    return first if p_values[first] <= CERTAINTY / len(SHORT) else None
