"""The highest rate that holds an SLO, by bisection."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from benchmarker.stats.quantile_interval import Estimate


@dataclass(frozen=True, slots=True)
class Highest:
    """The highest rate that held, None if the lowest did not; and the rates within which the limit lies for sure.

    Sure means that the whole 95% interval of the share is on one side of the target. An end is None if no rate that was
    tried is sure. `is_bounded` says whether a higher rate failed.
    """

    rate: float | None
    low: float | None
    high: float | None
    is_bounded: bool


def bisect(low: float, high: float, precision: float, holds: Callable[[float], bool]) -> None:
    """Try rates until the highest that holds and the lowest above it that does not differ by a share of `precision`.

    The first is `low`; only if it holds, `high` is the next. The middle of two rates is their geometric mean.
    """
    if not holds(low) or holds(high):
        return
    while high > low * (1 + precision):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if holds(middle) else (low, middle)


def highest(shares: Mapping[float, Estimate], target: float) -> Highest:
    """Return the highest rate at which, and below which, the share that meets the SLO was at least the target."""
    rates = sorted(shares)
    failed = next((rate for rate in rates if shares[rate].value < target), math.inf)
    held = [rate for rate in rates if rate < failed]
    best = held[-1] if held else None
    low = [rate for rate in held if (shares[rate].low or 0.0) >= target]
    high = [rate for rate in rates if rate >= failed and (shares[rate].high or 0.0) < target]
    return Highest(best, low[-1] if low else None, high[0] if high else None, failed < math.inf)
