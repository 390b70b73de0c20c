"""The difference of the means of two independent groups of few values, by Student's t distribution."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special


@dataclass(frozen=True, slots=True)
class MeanShift:
    """A difference of two means, with its standard error and degrees of freedom; `sizes` are the numbers of values.

    It has the methods of `Shift`. Values that do not scatter at all have no interval, and show nothing.
    """

    estimate: float
    error: float
    freedom: float
    sizes: tuple[int, ...]

    def interval(self, level: float) -> tuple[float, float] | None:
        """The interval that contains the true difference in a share `level` of cases; None without any scatter."""
        if not self.error > 0:
            return None
        half = float(special.stdtrit(self.freedom, (1 + level) / 2)) * self.error
        return self.estimate - half, self.estimate + half

    def p_above(self, limit: float) -> float:
        """One-sided p-value of the claim that the true difference is above `limit`."""
        return float(special.stdtr(self.freedom, (limit - self.estimate) / self.error)) if self.error > 0 else 1.0

    def p_below(self, limit: float) -> float:
        """One-sided p-value of the claim that the true difference is below `limit`."""
        return float(special.stdtr(self.freedom, (self.estimate - limit) / self.error)) if self.error > 0 else 1.0

    def p_against(self, limit: float) -> float:
        """Two-sided p-value of the claim that the true difference is not `limit`; above α within the interval."""
        return min(1.0, 2 * min(self.p_above(limit), self.p_below(limit)))

    @property
    def p_different(self) -> float:
        """Two-sided p-value of the claim that there is a difference."""
        return self.p_against(0.0)

    def p_within(self, limit: float) -> float:
        """p-value of the claim that the true difference is within ± `limit`: two one-sided tests (Schuirmann 1987)."""
        return max(self.p_above(-limit), self.p_below(limit))

    @property
    def least_p(self) -> float:
        """The smallest p-value that so many values can have."""
        return 0.0


def combined(parts: Sequence[float] | np.ndarray, sizes: Sequence[int]) -> tuple[float, float]:
    """Return the standard error of a sum of independent means, and its degrees of freedom; `parts` are their variances.

    The degrees of freedom are those of Welch and Satterthwaite (Welch, Biometrika 34, 1947).
    """
    variances = np.asarray(parts, float)
    total = float(variances.sum())
    if not total > 0:
        return math.sqrt(total), 1.0
    return math.sqrt(total), total**2 / float(sum(variances**2 / (np.asarray(sizes) - 1)))


def welch(baseline: np.ndarray, contender: np.ndarray) -> MeanShift:
    """Return the difference of the means of two groups, of which one at least has several values.

    A group of a single value shows no scatter; it is taken to scatter as the other does (the two-sample t test, with
    the degrees of freedom of the other). Otherwise the variances may differ (Welch 1947).
    """
    sizes = len(baseline), len(contender)
    variances = [float(each.var(ddof=1)) for each in (baseline, contender) if len(each) > 1]
    if len(variances) == 1:
        error, freedom = math.sqrt(variances[0] * (1 / sizes[0] + 1 / sizes[1])), max(sizes) - 1.0
    else:
        error, freedom = combined([one / n for one, n in zip(variances, sizes, strict=True)], sizes)
    return MeanShift(float(contender.mean() - baseline.mean()), error, freedom, sizes)
