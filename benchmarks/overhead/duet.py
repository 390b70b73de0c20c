"""Time two implementations alternately in one process, and compute the ratio of their times with its interval."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarker.stats.shift import paired


@dataclass(frozen=True, slots=True)
class Ratio:
    """Time of the contender divided by that of the baseline: Hodges-Lehmann estimate and 95% interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4f} [{self.low:.4f}, {self.high:.4f}]"


def play(baseline: Callable[[], int], contender: Callable[[], int], pairs: int, seed: int) -> list[float]:
    """Return log ratios of durations; each callable returns its duration in ns, and each pair runs in random order."""
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
    """Estimate the ratio from log ratios. Raises ValueError for fewer than six, the least for a 95% interval."""
    shift = paired(np.asarray(logs))
    interval = shift.interval(0.95)
    if interval is None:
        raise ValueError(f"{len(logs)} values have no 95% interval; at least six are needed")
    return Ratio(*(float(np.exp(value)) for value in (shift.estimate, *interval)))
