"""Simulated pairs of sides that are measured one after the other, on a machine that changes between their runs.

The logarithm of a trial's step time is the sum of a level of its own and of what the machine is like at that time: a
drift, or neighbours that come and go. The true difference is 0. A run lasts `RUN_MIN` minutes; the runs of a side
follow each other after a pause, and those of the contender follow those of the baseline.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import click
import numpy as np

from benchmarker.stats.shift import unpaired
from benchmarker.stats.welch import welch

TRIALS = 5
RUN_MIN = 10.0
BETWEEN_TRIALS = 0.01
"""Standard deviation of the levels of trials."""
RESAMPLES = 1000
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


RUNS = ((1, 1), (1, 3), (2, 2), (3, 3), (5, 5))
"""Numbers of runs of both sides."""
CONDITIONS: list[Drift | Neighbours] = [
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
) -> tuple[np.ndarray, np.ndarray]:
    """Return for both sides the log step times of the trials, with shape (pairs, runs, trials)."""
    starts = np.arange(sum(runs)) * (RUN_MIN + pause_min)
    within = (np.arange(TRIALS) + 0.5) * RUN_MIN / TRIALS
    times = np.broadcast_to((starts[:, None] + within).ravel(), (pairs, sum(runs) * TRIALS))
    logs = conditions(times, rng) + rng.normal(0, BETWEEN_TRIALS, times.shape)
    by_run = logs.reshape(pairs, sum(runs), TRIALS)
    return by_run[:, : runs[0]], by_run[:, runs[0] :]


def covered(one: np.ndarray, two: np.ndarray, level: float = 0.95) -> float:
    """Return the share of pairs whose interval contains the truth, by the tool's rule.

    With one run a side it is the rank-sum interval over trials, otherwise Welch's over the medians of runs.
    """
    if one.shape[1] == two.shape[1] == 1:
        intervals = [unpaired(*pair).interval(level) for pair in zip(one[:, 0], two[:, 0], strict=True)]
    else:
        medians = zip(np.median(one, axis=2), np.median(two, axis=2), strict=True)
        intervals = [welch(*pair).interval(level) for pair in medians]
    return float(np.mean([low <= 0 <= high for low, high in (each or (-np.inf, np.inf) for each in intervals)]))


def covered_by_bootstrap(one: np.ndarray, two: np.ndarray, rng: np.random.Generator, level: float = 0.95) -> float:
    """Return the same by a percentile bootstrap over runs, as a control."""
    means = []
    for side in (one, two):
        runs = np.median(side, axis=2)
        drawn = rng.integers(runs.shape[1], size=(RESAMPLES, *runs.shape))
        means.append(np.take_along_axis(runs[None], drawn, axis=2).mean(axis=2))
    low, high = np.quantile(means[1] - means[0], [(1 - level) / 2, (1 + level) / 2], axis=0)
    return float(np.mean((low <= 0) & (high >= 0)))


@click.command("simulate-runs")
@click.option("--pairs", default=2000, show_default=True)
@click.option("--pause", "pauses", default="30,60,120,1440", show_default=True, help="Pauses between runs, min.")
@click.option("--seed", default=0, show_default=True)
def simulate_runs(pairs: int, pauses: str, seed: int) -> None:
    """Print how often intervals of sides that were measured one after the other contain the truth, by runs a side."""
    print(
        f"{pairs} pairs; runs of {RUN_MIN:g} min with {TRIALS} trials; share of the intervals that contain the truth\n"
    )
    print(f"{'pause':>6}  {'the machine':20}" + "".join(f"{one} and {two}".rjust(9) for one, two in RUNS))
    for pause in map(float, pauses.split(",")):
        rows = [
            [covered(*sides(each, pairs, runs, pause, np.random.default_rng([seed, *runs]))) for runs in RUNS]
            for each in CONDITIONS
        ]
        names = [each.name for each in CONDITIONS]
        for name, row in itertools.chain(zip(names, rows, strict=True), [("all together", np.mean(rows, axis=0))]):
            print(f"{pause:6g}  {name:20}" + "".join(f"{share:9.1%}" for share in row), flush=True)
    shares = []
    for runs in RUNS:
        rng = np.random.default_rng([seed, *runs])
        shares.append(covered_by_bootstrap(*sides(CONDITIONS[0], pairs, runs, 1440, rng), rng))
    print(f"{1440:6}  bootstrap over runs " + "".join(f"{share:9.1%}" for share in shares))
