"""Classical statistics: descriptions of values, and tests that assume independent values."""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct


class Description(Struct, frozen=True):
    """A description of values: their number, moments (deviation with n - 1) and quantiles, in the values' unit."""

    n: int
    mean: float
    deviation: float | None
    minimum: float
    p5: float
    q1: float
    median: float
    q3: float
    p95: float
    maximum: float


class RankSum(Struct, frozen=True):
    """Rank-sum tests of two sets; `statistic` > 0 if the first set's values are larger.

    `statistic` and `p_value` are those of the Wilcoxon rank-sum test (normal approximation, no correction for ties).
    `u` and `u_p_value` are those of the Mann-Whitney test, with corrections for ties and continuity. All are valid
    only for independent values, which the events of one process are not.
    """

    statistic: float
    p_value: float
    u: float
    u_p_value: float


def describe(values: Sequence[float] | np.ndarray) -> Description:
    """Describe one or more values."""
    array = np.asarray(values, float)
    quantiles = (float(value) for value in np.percentile(array, [0, 5, 25, 50, 75, 95, 100]))
    deviation = float(array.std(ddof=1)) if len(array) > 1 else None
    return Description(len(array), float(array.mean()), deviation, *quantiles)


def rank_sum(first: Sequence[float] | np.ndarray, second: Sequence[float] | np.ndarray) -> RankSum:
    """Apply the Wilcoxon rank-sum test and the Mann-Whitney U test to two sets of values."""
    from scipy import stats  # takes half a second

    wilcoxon = stats.ranksums(first, second)
    mann_whitney = stats.mannwhitneyu(first, second, method="asymptotic")
    return RankSum(
        float(wilcoxon.statistic), float(wilcoxon.pvalue), float(mann_whitney.statistic), float(mann_whitney.pvalue)
    )
