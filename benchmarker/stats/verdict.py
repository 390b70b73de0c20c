"""From shifts to verdicts: is there a difference, is it too small to matter, or can that not be said."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from benchmarker.stats.shift import Shift

Outcome = Literal["lower", "higher", "same", "undecided"]
POWER = 0.8
"""The chance with which a suggested number of trials decides."""
MOST_SUGGESTED = 1000


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values adjusted for their number, so that any false claim among them stays as unlikely as one alone.

    Source: Holm, A simple sequentially rejective multiple test procedure, Scand. J. Statist. 6 (1979).
    """
    order = np.argsort(p_values, kind="stable")
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for position, index in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - position) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def judge(estimate: float, p_different: float, p_same: float, alpha: float) -> Outcome:
    """The verdict on a shift: `same` comes first, so that what is too small to matter is never called a difference."""
    if p_same <= alpha:
        return "same"
    if p_different <= alpha:
        return "higher" if estimate > 0 else "lower"
    return "undecided"


def enough(shift: Shift, margin: float, alpha: float) -> int | None:
    """Blocks (or trials a side) that would likely decide, if the truth is what was seen; None beyond a thousand.

    The interval's half width h at n values shrinks as 1/√n, and h ≈ z(1 - alpha/2) * s/√n gives the spread s. Then the
    usual sample sizes of a two-sided test and of two one-sided ones, at a power of 80% (Chow, Shao & Wang, Sample Size
    Calculations in Clinical Research, chapter 3).
    """
    z = NormalDist().inv_cdf
    n = min(shift.sizes)
    interval = shift.interval(1 - alpha)
    if interval is None:
        deviation = float(np.std(shift.points)) * math.sqrt(2)  # a point is the mean, or the difference, of two values
        scale = deviation
    else:
        scale = (interval[1] - interval[0]) / 2 / z(1 - alpha / 2) * math.sqrt(n)
    away = abs(shift.estimate)
    needed = []
    if away > 0:
        needed.append(((z(1 - alpha / 2) + z(POWER)) * scale / away) ** 2)
    if margin > away:
        needed.append(((z(1 - alpha) + z(POWER if away > 0 else (1 + POWER) / 2)) * scale / (margin - away)) ** 2)
    least = min(needed, default=math.inf)
    return max(n + 1, math.ceil(least)) if least <= MOST_SUGGESTED else None
