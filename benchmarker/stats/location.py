"""Where the middle of a few values lies, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import stats

from benchmarker.stats.shift import Shift, counted

LEVEL = 0.95


def median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """The 95% interval of the median, between order statistics; None for fewer than six values.

    It is the interval of the sign test: the number of values above the true median is binomial, whatever their shape
    (David & Nagaraja, Order Statistics, 2003, section 7.1). `measure.median_half_width` is half its width.
    """
    n = len(values)
    null = counted(stats.binom.pmf(np.arange(n + 1), n, 0.5))
    return Shift(np.sort(np.asarray(values, float)), null, (n,)).interval(LEVEL)
