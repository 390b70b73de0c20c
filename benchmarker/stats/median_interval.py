"""Confidence intervals of the median."""

import math
import statistics
from collections.abc import Sequence
from functools import cache

import numpy as np

from benchmarker.stats.shift import Normal, Null, Shift, counted

LEVEL = 0.95
EXACT = 1000
"""Number of values up to which ranks come from the exact distribution."""


def median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the 95% confidence interval of the median, between order statistics; None for fewer than six values.

    It is the interval of the sign test: the number of values above the true median is binomial for any distribution
    (David & Nagaraja, Order Statistics, 2003, section 7.1). `median_half_width` is half its width, as a share of the
    median.
    """
    return median_shift(values).interval(LEVEL)


def median_shift(values: Sequence[float] | np.ndarray) -> Shift:
    """Return the shift of values from 0 by the sign test, which assumes nothing about their distribution."""
    return Shift(np.sort(np.asarray(values, float)), _binomial(len(values)), (len(values),))


def median_spreads(several: Sequence[Sequence[float]]) -> tuple[str, list[tuple[float, float] | None]]:
    """Return what the spreads of several sets of values are, and each: `95% interval` of the median, or `range`.

    They are ranges if a set that is not empty has too few values for an interval. A set has no spread if it is empty,
    nor has a single value.
    """
    intervals = [median_interval(each) if each else None for each in several]
    if all(each is not None or not of for each, of in zip(intervals, several, strict=True)):
        return "95% interval", intervals
    return "range", [(min(each), max(each)) if len(each) > 1 else None for each in several]


@cache
def _binomial(n: int) -> Null:
    """Return the distribution of the number of heads in n throws of a coin; for many throws, the normal one."""
    if n > EXACT:
        return Normal(n / 2, math.sqrt(n) / 2)
    ways = 1
    chances = np.empty(n + 1)
    for heads in range(n + 1):
        chances[heads] = ways / 2**n
        ways = ways * (n - heads) // (heads + 1)
    return counted(chances)


MIN_BLOCKS_FOR_INTERVAL = 6
"""Smallest number of values whose extremes form a 95% interval of the median: 2 * 0.5**6 < 0.05."""


def median_half_width(values: list[int]) -> float:
    """Return half the width of the 95% confidence interval of the median, as a share of the median.

    The interval lies between order statistics, with the rank from the binomial distribution. It assumes
    independent values but no particular distribution (David & Nagaraja, Order Statistics, 2003, section 7.1).
    Raises ValueError for fewer than six values.
    """
    n = len(values)
    if n < MIN_BLOCKS_FOR_INTERVAL:
        raise ValueError(f"{n} values have no 95% interval of the median; {MIN_BLOCKS_FOR_INTERVAL} are needed")
    if n > EXACT:  # the normal approximation; the exact sum would underflow
        rank = int((n - 1 - 1.96 * math.sqrt(n)) / 2)
    else:
        tail = math.comb(n, 0)
        rank = 0
        while (tail := tail + math.comb(n, rank + 1)) <= 0.025 * 2**n:
            rank += 1
    ordered = sorted(values)
    return (ordered[n - 1 - rank] - ordered[rank]) / 2 / statistics.median(ordered)
