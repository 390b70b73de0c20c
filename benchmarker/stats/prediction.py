"""Prediction bounds: how far the median of new values may be from the median of those already seen."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

if TYPE_CHECKING:
    from collections.abc import Sequence


def median_allowance(values: Sequence[float], alpha: float) -> float:
    """Return the distance below the median of n values that the median of n new ones exceeds with probability `alpha`.

    The allowance is t * s * sqrt(pi/2 * (1/n + 1/n)), with the standard deviation s of the values and the quantile t of
    Student's distribution at 1 - alpha with n - 1 degrees of freedom. It is the one-sided prediction bound of a mean of
    n new values (Meeker, Hahn & Escobar, Statistical Intervals, 2nd edition, 2017, section 4.8), in which the variance
    of each mean is multiplied by pi/2. That is the variance of a median of many normal values relative to that of their
    mean, and more than that of few (David & Nagaraja, Order Statistics, 2003, chapter 10), so the bound is on the safe
    side. The values are assumed to be normal. Raises ValueError for fewer than two values.
    """
    n = len(values)
    if n < 2:
        raise ValueError("a single value shows no scatter")
    spread = float(np.std(values, ddof=1))
    return float(special.stdtrit(n - 1, 1 - alpha)) * spread * math.sqrt(math.pi / 2 * (2 / n))
