"""Simulated step times with a known true difference.

An experiment consists of rounds of two sides, A and B, with one process each. The logarithm of a step time is the sum
of

    the truth       for B, the log of its true ratio to A
    the process     its own level: normal, Student's t with 3 degrees of freedom, or sometimes in a slower mode
    the drift       common to both sides along the sequence of processes: a random walk, or a straight line
    the noise       AR(1) within a process; some steps take three times as long

The resolution of the clock may be coarse.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import signal

MODE_SHARE, MODE_SLOWDOWN = 0.3, 1.2
"""Share of the processes that are in the slower mode, and how much longer its steps are."""
CONTAMINATION = 3.0
"""How much longer a disturbed step takes."""
AT_ONCE = 500
"""Experiments in memory at once."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """How step times vary; spreads are standard deviations of logarithms."""

    name: str
    level: str = "normal"
    """Distribution of the processes' levels: normal, t3 or bimodal (normal around two modes)."""
    between: float = 0.01
    """Spread of the processes' levels."""
    within: float = 0.03
    """Spread of the steps of a process."""
    rho: float = 0.0
    """Correlation of a step with the one before it."""
    walk: float = 0.0
    """Spread of the change of the drift from one process to the next."""
    trend: float = 0.0
    """The linear drift from the first process to the last."""
    disturbed: float = 0.0
    """Share of the steps that are disturbed."""
    tick: float = 0.0
    """Resolution of the clock, as a share of a step of A."""

    @property
    def drifts(self) -> bool:
        """Whether there is drift, so that the order of processes matters."""
        return bool(self.walk or self.trend)


SCENARIOS = [
    Scenario("quiet", between=0.003, within=0.01),
    Scenario("plain"),
    Scenario("noisy", between=0.05, within=0.1),
    Scenario("heavy tails", level="t3"),
    Scenario("bimodal", level="bimodal"),
    Scenario("AR(1) 0.9", rho=0.9),
    Scenario("disturbed", disturbed=0.05),
    Scenario("ties", tick=0.01),
    Scenario("random walk", walk=0.01),
    Scenario("trend", trend=0.2),
    Scenario("all at once", level="t3", rho=0.9, walk=0.01, trend=0.05, disturbed=0.02, tick=0.002),
]


def step_times(
    scenario: Scenario,
    experiments: int,
    rounds: int,
    iterations: int,
    ratio: float,
    rng: np.random.Generator,
    *,
    in_turns: bool = True,
) -> np.ndarray:
    """Return step times with shape (experiments, rounds, side (A, B), iterations); a step of A takes about 1.

    `rounds` is the number of rounds. The order of the sides is randomised in every round; with `in_turns=False`, all
    processes of A come before those of B.
    """
    shape = (experiments, rounds, 2)
    places = 2 * np.arange(rounds)[:, None] + rng.permuted(np.broadcast_to([0, 1], shape), axis=2)
    if not in_turns:
        places = np.broadcast_to(np.arange(2 * rounds).reshape(2, rounds).T, shape)
    steps = rng.normal(0, scenario.walk, (experiments, 2 * rounds))
    drift = np.cumsum(steps, axis=1) + np.linspace(0, scenario.trend, 2 * rounds)
    logs = np.take_along_axis(drift, places.reshape(experiments, -1), axis=1).reshape(shape)
    if scenario.level == "t3":
        logs += scenario.between * rng.standard_t(3, shape) / math.sqrt(3)
    else:
        logs += rng.normal(0, scenario.between, shape)
    if scenario.level == "bimodal":
        logs += math.log(MODE_SLOWDOWN) * (rng.random(shape) < MODE_SHARE)
    logs[..., 1] += math.log(ratio)
    noise = rng.normal(0, scenario.within, (*shape, iterations))
    if scenario.rho:
        noise[..., 1:] *= math.sqrt(1 - scenario.rho**2)
        noise = signal.lfilter([1], [1, -scenario.rho], noise, axis=-1)
    times = np.exp(logs[..., None] + noise)
    if scenario.disturbed:
        times *= np.where(rng.random(times.shape) < scenario.disturbed, CONTAMINATION, 1)
    return np.maximum(np.round(times / scenario.tick), 1) * scenario.tick if scenario.tick else times


def medians(
    scenario: Scenario,
    experiments: int,
    rounds: int,
    iterations: int,
    ratio: float,
    rng: np.random.Generator,
    *,
    in_turns: bool = True,
) -> np.ndarray:
    """Return the log median step time of each process, by experiment, round and side; arguments as in `step_times`."""
    found = []
    for start in range(0, experiments, AT_ONCE):
        count = min(AT_ONCE, experiments - start)
        times = step_times(scenario, count, rounds, iterations, ratio, rng, in_turns=in_turns)
        found.append(np.log(np.median(times, axis=-1)))
    return np.concatenate(found)
