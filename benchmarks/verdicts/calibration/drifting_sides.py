"""Simulated pairs of sides that are measured one after the other, on a machine that changes between their runs.

The logarithm of a step time is the sum of the truth (for the contender), a level of each trial, and what the machine is
like at that time: a slow drift, neighbours that come and go, or lasting steps. All times are in minutes. A run lasts
`RUN_MIN`; runs of a side follow each other after `pause_min`, and the contender's after the baseline's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarker.stats.shift import unpaired
from benchmarker.stats.welch import welch

TRIALS = 5
RUN_MIN = 10.0
BETWEEN_TRIALS = 0.01
"""Standard deviation of the levels of trials."""
CASES = 4
"""Cases of a run; a neighbour meets all of them."""
Conditions = Callable[[np.ndarray, np.random.Generator], np.ndarray]
"""How much slower the machine is at given times, log, with shape (pairs, times) and in ascending order."""


@dataclass(frozen=True, slots=True)
class Drift:
    """An Ornstein-Uhlenbeck process: the machine wanders by `spread` and forgets where it was within `memory_min`."""

    name: str
    spread: float
    memory_min: float

    def __call__(self, times: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return the process at these times."""
        found = np.empty(times.shape)
        found[:, 0] = rng.normal(0, self.spread, len(times))
        for at in range(1, times.shape[1]):
            kept = np.exp(-(times[:, at] - times[:, at - 1]) / self.memory_min)
            fresh = rng.normal(0, self.spread, len(times)) * np.sqrt(1 - kept**2)
            found[:, at] = kept * found[:, at - 1] + fresh
        return found


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Independent neighbours that are busy for `busy_min` and at rest for `rest_min` on average (random telegraph)."""

    name: str
    slower: float
    busy_min: float
    rest_min: float
    number: int = 3

    def __call__(self, times: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return the sum of the slow-downs at these times."""
        share, rate = self.busy_min / (self.busy_min + self.rest_min), 1 / self.busy_min + 1 / self.rest_min
        busy = rng.random((self.number, len(times))) < share
        found = np.empty(times.shape)
        found[:, 0] = self.slower * busy.sum(axis=0)
        for at in range(1, times.shape[1]):
            kept = np.exp(-rate * (times[:, at] - times[:, at - 1]))
            busy = rng.random(busy.shape) < share + (busy - share) * kept
            found[:, at] = self.slower * busy.sum(axis=0)
        return found


CONDITIONS = [
    Drift("drift, 10 min", 0.05, 10),
    Drift("drift, 1 h", 0.05, 60),
    Drift("drift, 6 h", 0.05, 360),
    Neighbours("neighbours, 5 min", 0.1, 5, 10),
    Neighbours("neighbours, 30 min", 0.1, 30, 60),
    Neighbours("neighbours, 3 h", 0.1, 180, 360),
    Neighbours("one neighbour, 3 h", 0.3, 180, 360, number=1),
]


def sides(
    conditions: Conditions, pairs: int, runs: tuple[int, int], pause_min: float, rng: np.random.Generator
) -> list[list[np.ndarray]]:
    """Return for both sides the log values of each run, with shape (pairs, trials): means over cases of a trial."""
    starts = np.arange(sum(runs)) * (RUN_MIN + pause_min)
    within = (np.arange(TRIALS) + 0.5) * RUN_MIN / TRIALS
    times = np.broadcast_to((starts[:, None] + within).ravel(), (pairs, sum(runs) * TRIALS))
    logs = conditions(times, rng) + rng.normal(0, BETWEEN_TRIALS, times.shape)
    by_run = list(logs.reshape(pairs, sum(runs), TRIALS).swapaxes(0, 1))
    return [by_run[: runs[0]], by_run[runs[0] :]]


def covered(one: list[np.ndarray], two: list[np.ndarray], level: float = 0.95) -> float:
    """Return the share of pairs whose interval contains the truth, which is 0, by the tool's rule.

    One run a side: the rank-sum interval over trials. Otherwise Welch's over the medians of runs.
    """
    hits = 0
    for pair in range(len(one[0])):
        if len(one) == len(two) == 1:
            shift = unpaired(one[0][pair], two[0][pair])
        else:
            shift = welch(*(np.array([np.median(run[pair]) for run in side]) for side in (one, two)))
        low, high = shift.interval(level) or (-np.inf, np.inf)
        hits += low <= 0 <= high
    return hits / len(one[0])
