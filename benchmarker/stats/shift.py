"""The shift between two sets of values: an estimate, an interval, and p-values that always agree with the interval.

A rank test and its interval are equivalent. Each method below has *points* and a null distribution:

    paired     the Walsh averages (d_i + d_j) / 2, i <= j, of the differences d       signed-rank
    unpaired   the differences b_j - a_i of every pair                                rank-sum (Mann-Whitney)

The number of points beyond a hypothetical shift is the test's statistic under that shift. Therefore the median of the
points is the estimate (Hodges-Lehmann), two of the points are the ends of the interval, and the distribution gives the
p-value. Tied values count against the claim, as if each tie had been broken unfavourably. A false claim therefore stays
as unlikely as without ties.

Source: Hollander, Wolfe & Chicken, Nonparametric Statistical Methods, 3rd edition (2014), sections 3.1-3.3, 4.1-4.3.
"""

import functools
import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Protocol

import numpy as np

from benchmarker.api.errors import UserError

MAX_POINTS = 20_000_000
"""Maximum number of points; they are kept in memory (150 MiB)."""
EXACT_PAIRED = 200
"""Number of differences up to which the null distribution of the signed-rank statistic is exact."""
EXACT_UNPAIRED = 10_000
"""Number of pairs up to which the null distribution of the rank-sum statistic is exact."""
ROUNDING = 1e-12
"""Share by which probabilities are reduced, so that rounding cannot make one that equals alpha exceed it."""


class Null(Protocol):
    """A statistic's distribution if there is no shift: on 0, 1, ... and symmetric."""

    def cdf(self, k: int) -> float:
        """P(statistic <= k)."""

    def rank(self, tail: float) -> int:
        """The largest k with P(statistic <= k) <= tail; -1 if there is none."""


@dataclass(frozen=True, slots=True)
class Exact:
    """A distribution obtained by counting: `below[k]` = P(statistic <= k)."""

    below: np.ndarray

    def cdf(self, k: int) -> float:
        """P(statistic <= k)."""
        return 0.0 if k < 0 else float(self.below[min(k, len(self.below) - 1)])

    def rank(self, tail: float) -> int:
        """The largest k with P(statistic <= k) <= tail; -1 if there is none."""
        return int(np.searchsorted(self.below, tail, side="right")) - 1


@dataclass(frozen=True, slots=True)
class Normal:
    """The normal approximation with continuity correction, for many values."""

    mean: float
    deviation: float

    def cdf(self, k: int) -> float:
        """P(statistic <= k)."""
        return NormalDist(self.mean, self.deviation).cdf(k + 0.5)

    def rank(self, tail: float) -> int:
        """The largest k with P(statistic <= k) <= tail; -1 if there is none."""
        return max(-1, math.floor(NormalDist(self.mean, self.deviation).inv_cdf(tail) - 0.5))


def counted(chances: np.ndarray) -> Exact:
    """Return the distribution in which the values 0, 1, ... have these probabilities."""
    return Exact(np.cumsum(chances) * (1 - ROUNDING))


@functools.cache
def signed_rank_null(n: int) -> Null:
    """Null distribution of the signed-rank statistic of n differences.

    Each rank 1..n is in the sum with probability 1/2.
    """
    size = n * (n + 1) // 2 + 1
    if n > EXACT_PAIRED:
        return Normal((size - 1) / 2, math.sqrt(n * (n + 1) * (2 * n + 1) / 24))
    chances = np.zeros(size)
    chances[0] = 1.0
    for rank in range(1, n + 1):
        moved = np.zeros(size)
        moved[rank:] = chances[: size - rank]
        chances = (chances + moved) / 2
    return counted(chances)


@functools.cache
def rank_sum_null(n: int, m: int) -> Null:
    """Null distribution of the Mann-Whitney statistic of n and m values: all orders are equally likely.

    Recurrence (Mann & Whitney 1947): the largest value is one of the n (and then exceeds all m) or one of the m.
    """
    if n * m > EXACT_UNPAIRED:
        return Normal(n * m / 2, math.sqrt(n * m * (n + m + 1) / 12))
    n, m = max(n, m), min(n, m)  # symmetric in n and m; a row is as long as the shorter side
    row = [np.ones(1)] * (m + 1)
    for i in range(1, n + 1):
        last = np.ones(1)
        new = [last]
        for j in range(1, m + 1):
            chances = np.zeros(i * j + 1)
            chances[j:] += i / (i + j) * row[j]
            chances[: len(last)] += j / (i + j) * last
            last = chances
            new.append(last)
        row = new
    return counted(row[m])


@dataclass(frozen=True, slots=True)
class Shift:
    """A shift estimated by one of the two methods; `points` are sorted, `sizes` are the numbers of values used."""

    points: np.ndarray
    null: Null
    sizes: tuple[int, ...]

    @property
    def estimate(self) -> float:
        """The Hodges-Lehmann estimate: the median of the points."""
        return float(np.median(self.points))

    def interval(self, level: float) -> tuple[float, float] | None:
        """The interval that contains the true shift in a share `level` of cases; None if there are too few values."""
        rank = self.null.rank((1 - level) / 2)
        return None if rank < 0 else (float(self.points[rank]), float(self.points[-1 - rank]))

    def p_above(self, limit: float) -> float:
        """One-sided p-value of the claim that the true shift is above `limit`."""
        return self.null.cdf(int(np.searchsorted(self.points, limit, side="right")))

    def p_below(self, limit: float) -> float:
        """One-sided p-value of the claim that the true shift is below `limit`."""
        return self.null.cdf(len(self.points) - int(np.searchsorted(self.points, limit, side="left")))

    def p_against(self, limit: float) -> float:
        """Two-sided p-value of the claim that the true shift is not `limit`; above α within the interval."""
        return min(1.0, 2 * min(self.p_above(limit), self.p_below(limit)))

    @property
    def p_different(self) -> float:
        """Two-sided p-value of the claim that there is a shift."""
        return self.p_against(0.0)

    @property
    def least_p(self) -> float:
        """The smallest two-sided p-value that so many values can have."""
        return 2 * self.null.cdf(0)

    def p_within(self, limit: float) -> float:
        """p-value of the claim that the true shift is within ± `limit`: two one-sided tests (Schuirmann 1987)."""
        return max(self.p_above(-limit), self.p_below(limit))


def paired(differences: np.ndarray) -> Shift:
    """Return the shift of paired values, from their differences (contender minus baseline).

    Raises `UserError` if there are more pairs of differences than fit into memory.
    """
    n = len(differences)
    if n * (n + 1) // 2 > MAX_POINTS:
        raise UserError(f"{n} differences are too many to compare pair by pair; name fewer records")
    rows, columns = np.triu_indices(n)
    points = np.sort((differences[rows] + differences[columns]) / 2)
    return Shift(points, signed_rank_null(n), (n,))


def unpaired(baseline: np.ndarray, contender: np.ndarray) -> Shift:
    """Return the shift from `baseline` to `contender` for unpaired values.

    Raises `UserError` if there are more pairs than fit into memory.
    """
    if len(baseline) * len(contender) > MAX_POINTS:
        raise UserError(
            f"{len(baseline)} against {len(contender)} values are too many to compare pair by pair; name fewer records"
        )
    points = np.sort((contender[None, :] - baseline[:, None]).ravel())
    return Shift(points, rank_sum_null(len(baseline), len(contender)), (len(baseline), len(contender)))


def fewest(alpha: float, *, is_paired: bool) -> int:
    """Return the fewest rounds (or trials per side) with which a difference can reach a p-value of `alpha`."""
    n = 1
    while 2 * (2.0**-n if is_paired else 1 / math.comb(2 * n, n)) > alpha:
        n += 1
    return n
