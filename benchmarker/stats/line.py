"""A line through times over sizes: t = t₀ + n/r, with what a step costs in any case, t₀, and the rate r of large ones.

After Hockney, "The communication challenge for MPP", Parallel Computing 20(3), 1994. Residuals are relative: those of
large sizes would otherwise decide alone.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from benchmarker.stats.median_interval import median_interval
from benchmarker.stats.quantile_interval import Estimate

NOTHING = 1e-9
"""Growth up to the largest size, as a share of t₀, that is rounding."""


@dataclass(frozen=True, slots=True)
class Line:
    """t₀, s, and r, 1/s, with 95% intervals; `residual` is the largest of the median times, as a share of the line."""

    start: Estimate
    rate: Estimate
    residual: float


def line(sizes: np.ndarray, times_s: np.ndarray) -> Line | None:
    """Return the line through the times [rounds, sizes] of each of the sizes; None if they do not grow with the size.

    A line is fitted to each round by least squares, in which neither t₀ nor 1/r is negative. The medians over rounds
    are those of the result; their intervals need six rounds.
    """
    largest = float(sizes.max())
    shares, ones = sizes / largest, np.ones(len(sizes))
    lines = np.array([nnls(np.stack([ones, shares], axis=1) / times[:, None], ones)[0] for times in times_s])
    lines[lines[:, 1] < NOTHING * lines[:, 0], 1] = 0
    start_s, growth_s = map(float, np.median(lines, axis=0))
    if not growth_s:
        return None
    starts, growths = (median_interval(values.tolist()) or (None, None) for values in lines.T)
    low, high = (largest / end if end else None for end in reversed(growths))
    residuals = np.median(times_s, axis=0) / (start_s + shares * growth_s) - 1
    return Line(Estimate(start_s, *starts), Estimate(largest / growth_s, low, high), float(np.abs(residuals).max()))
