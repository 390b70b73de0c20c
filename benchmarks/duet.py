"""Two ways of doing the same, timed in turns in one process, and the ratio of their times with its interval."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import stats


@dataclass(frozen=True, slots=True)
class Ratio:
    """Time of the contender over that of the baseline: Hodges-Lehmann estimate and 95% interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4f} [{self.low:.4f}, {self.high:.4f}]"


def play(baseline: Callable[[], int], contender: Callable[[], int], pairs: int, seed: int) -> list[float]:
    """Log ratios of durations (each callable returns its own, in ns), the order of every pair drawn anew."""
    rng = random.Random(seed)
    logs = []
    for _ in range(pairs):
        if rng.random() < 0.5:
            first, second = baseline(), contender()
            logs.append(np.log(second / first))
        else:
            second, first = contender(), baseline()
            logs.append(np.log(second / first))
    return logs


def ratio(logs: list[float]) -> Ratio:
    """Hodges-Lehmann estimate of the median log ratio, and the interval that inverts the signed-rank test.

    The interval lies between order statistics of the Walsh averages (Hollander, Wolfe & Chicken, Nonparametric
    Statistical Methods, 2014, section 3.3).
    """
    values = np.asarray(logs)
    n = len(values)
    walsh = np.sort((values[:, None] + values[None, :])[np.triu_indices(n)] / 2)
    mean, deviation = n * (n + 1) / 4, np.sqrt(n * (n + 1) * (2 * n + 1) / 24)
    rank = max(0, int(np.floor(mean + stats.norm.ppf(0.025) * deviation)))
    low, high = walsh[rank], walsh[len(walsh) - 1 - rank]
    return Ratio(*(float(np.exp(value)) for value in (np.median(walsh), low, high)))
