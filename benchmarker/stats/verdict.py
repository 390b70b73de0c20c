"""Verdicts from shifts: a difference, one too small to matter, or undecided; and when to look at one."""

import itertools
import math
from collections.abc import Sequence
from statistics import NormalDist, harmonic_mean
from typing import Literal

import numpy as np
from scipy import special

from benchmarker.stats.shift import Shift, fewest
from benchmarker.stats.welch import MeanShift

ShiftVerdict = Literal["lower", "higher", "same", "undecided"]
POWER = 0.8
"""Probability with which a suggested number of rounds or trials decides."""
MOST_SUGGESTED = 1000


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values for their number, so that any false claim among them stays as unlikely as in a single test.

    Source: Holm, A simple sequentially rejective multiple test procedure, Scand. J. Statist. 6 (1979).
    """
    order = np.argsort(p_values, kind="stable")
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for position, index in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - position) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def judge(estimate: float, p_different: float, p_same: float, alpha: float) -> ShiftVerdict:
    """Return the verdict on a shift, which its interval of level 1 - `alpha` shows: inside the margin, it is `same`.

    That is asked first, so a shift too small to matter is never a difference. `p_same` is that of two one-sided tests,
    each of which may use half of `alpha`, as each end of the interval does.
    """
    if p_same <= alpha / 2:
        return "same"
    if p_different <= alpha:
        return "higher" if estimate > 0 else "lower"
    return "undecided"


def enough(shift: Shift | MeanShift, margin: float, alpha: float) -> int | None:
    """Return the rounds (or values per side) that would probably decide if the estimate is true; None above a thousand.

    The interval's half width is h ≈ t * s/√n, where t is Student's quantile at the interval's own tail (the first two
    terms of Abramowitz & Stegun 26.7.5). This gives the spread s. Single values show no spread; for them the result is
    the fewest that can decide.
    """
    normal = NormalDist()
    had = harmonic_mean(shift.sizes)
    if isinstance(shift, MeanShift):
        least = max(math.floor(had) + 1, 2)
        return deciding(shift.estimate, shift.error * math.sqrt(had), margin, alpha, least, is_t=True)
    least = max(math.floor(had) + 1, fewest(alpha, is_paired=len(shift.sizes) == 1))
    freedom = sum(shift.sizes) - len(shift.sizes)
    if freedom == 0:
        return least
    rank = max(0, shift.null.rank(alpha / 2))
    half_width = float(shift.points[-1 - rank] - shift.points[rank]) / 2
    z = normal.inv_cdf(1 - shift.null.cdf(rank))
    spread = half_width / (z + (z**3 + z) / (4 * freedom)) * math.sqrt(had)
    return deciding(shift.estimate, spread, margin, alpha, least)


def deciding(
    estimate: float, spread: float, margin: float, alpha: float, least: int, *, is_t: bool = False
) -> int | None:
    """Return the smallest n, from `least` on, that would probably decide; None above a thousand.

    They decide unless the estimate is further from 0 than `same` allows and nearer than a difference requires. The
    estimate from n values is normal around the true shift, with the standard deviation spread/√n. With `is_t`, the test
    is Student's of two groups of n, so that few values need a larger difference.
    """
    n = np.arange(least, MOST_SUGGESTED + 1)
    freedom = 2 * (n - 1) if is_t else np.inf
    tail = special.stdtrit(freedom, 1 - alpha / 2)
    errors = np.sqrt(n) / max(spread, 1e-300)  # standard errors of the estimate per unit
    truth, same = estimate * errors, np.maximum(0.0, margin * errors - tail)
    between = sum(special.ndtr(tail - side) - special.ndtr(same - side) for side in (truth, -truth))
    decides = n[between <= 1 - POWER]
    return int(decides[0]) if len(decides) else None


LOOKS = (8, 11, 15, 20, 30)
"""Rounds after which the verdict is examined; eight is the fewest with which a p-value of 0.01 can be reached."""
GROWTH = 1.4
"""Factor from one look to the next after the last of these, if more rounds are allowed."""


def looks(most: int, first: Sequence[int] = LOOKS) -> list[int]:
    """Return the numbers of rounds at which to look; the last is `most`."""
    rounds = list(first)
    while rounds[-1] < most:
        rounds.append(round(rounds[-1] * GROWTH))
    return [*(look for look in rounds if look * GROWTH**0.5 < most), most]


def looks_at(alpha: float, most: int) -> list[int]:
    """Return the same for an `alpha` other than 5%: the first look is the earliest that can decide with its share."""
    for planned in itertools.count(1):
        chosen = looks(most, [fewest(alpha / planned, is_paired=True)])
        if len(chosen) <= planned:
            break
    return chosen


def share(alpha: float, planned: Sequence[int]) -> float:
    """Return the part of `alpha` for each planned look: equal parts, whose sum is an upper bound (Bonferroni).

    With five looks and an alpha of 5%, equal sides are called different in about 3% of cases (simulated:
    benchmarks/verdicts/calibration). With the full alpha at each look it would be 10 to 19%.
    """
    return alpha / max(1, len(planned))
