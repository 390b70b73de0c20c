"""Tell how often the tool's verdicts are wrong, where the truth is known because the step times are drawn.

Blocks of two sides, A and B, one process each. The logarithm of a step time is the sum of

    the truth       the log of B's true ratio to A, for B
    the process     its own level: normal, Student's t with 3 degrees of freedom, or now and then in a slower mode
    the drift       of both sides alike along the sequence of processes: a random walk, or a straight line
    the noise       AR(1) within a process, some steps being three times as long

and the clock may be coarse. The statistic of a process is the median over its steps.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import click
import numpy as np
from scipy import signal, stats

from benchmarker.stats.sequential import LOOKS, share
from benchmarker.stats.shift import Shift, paired, unpaired
from benchmarker.stats.verdict import judge

MODE_SHARE, MODE_SLOWDOWN = 0.3, 1.2
"""Share of the processes that are in the slower mode, and how much longer its steps are."""
CONTAMINATION = 3.0
"""How much longer a disturbed step takes."""
AT_ONCE = 500
"""Experiments held in memory together."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """What happens to step times; spreads are standard deviations of logarithms."""

    name: str
    level: str = "normal"
    """Distribution of the processes' levels: normal, t3 or bimodal (the normal one is then around two modes)."""
    between: float = 0.01
    """Spread of the processes' levels."""
    within: float = 0.03
    """Spread of the steps of a process."""
    rho: float = 0.0
    """Correlation of a step with the one before it."""
    walk: float = 0.0
    """Spread of the drift's change from a process to the next."""
    trend: float = 0.0
    """The drift in a straight line, from the first process to the last."""
    disturbed: float = 0.0
    """Share of the steps that are disturbed."""
    tick: float = 0.0
    """Resolution of the clock, as a share of a step of A."""

    @property
    def drifts(self) -> bool:
        """Whether the order of processes matters."""
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
    blocks: int,
    iterations: int,
    ratio: float,
    rng: np.random.Generator,
    *,
    in_turns: bool = True,
) -> np.ndarray:
    """Step times by experiment, block, side (A, B) and iteration; a step of A takes about 1.

    The order within each block is drawn anew; with `in_turns=False` all processes of A come before those of B.
    """
    shape = (experiments, blocks, 2)
    places = 2 * np.arange(blocks)[:, None] + rng.permuted(np.broadcast_to([0, 1], shape), axis=2)
    if not in_turns:
        places = np.broadcast_to(np.arange(2 * blocks).reshape(2, blocks).T, shape)
    steps = rng.normal(0, scenario.walk, (experiments, 2 * blocks))
    drift = np.cumsum(steps, axis=1) + np.linspace(0, scenario.trend, 2 * blocks)
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
    blocks: int,
    iterations: int,
    ratio: float,
    rng: np.random.Generator,
    *,
    in_turns: bool = True,
) -> np.ndarray:
    """Log of the median step time of each process, by experiment, block and side; arguments as of `step_times`."""
    found = []
    for start in range(0, experiments, AT_ONCE):
        count = min(AT_ONCE, experiments - start)
        times = step_times(scenario, count, blocks, iterations, ratio, rng, in_turns=in_turns)
        found.append(np.log(np.median(times, axis=-1)))
    return np.concatenate(found)


def shifts(values: np.ndarray, *, is_paired: bool = True) -> Iterator[Shift]:
    """The shift from A to B of each experiment, as the tool sees it."""
    for each in values:
        yield paired(each[:, 1] - each[:, 0]) if is_paired else unpaired(each[:, 0], each[:, 1])


@dataclass(slots=True)
class Tally:
    """What was said of many experiments with one truth."""

    truth: float
    outcomes: list[str] = field(default_factory=list)
    covered: int = 0
    """Number of experiments whose interval holds the truth."""
    used: int = 0
    """Blocks of all experiments together."""

    @property
    def blocks(self) -> float:
        """Mean number of blocks of an experiment."""
        return self.used / self.n

    @property
    def n(self) -> int:
        """Number of experiments."""
        return len(self.outcomes)

    def count(self, *outcomes: str) -> int:
        """Number of experiments with one of these outcomes."""
        return sum(self.outcomes.count(outcome) for outcome in outcomes)

    def share(self, *outcomes: str) -> float:
        """Share of experiments with one of these outcomes."""
        return self.count(*outcomes) / self.n


def tally(values: np.ndarray, ratio: float, alpha: float, delta: float, *, is_paired: bool = True) -> Tally:
    """Judge each experiment by the tool's rule; where there are too few values for an interval, it holds the truth."""
    result = Tally(math.log(ratio))
    margin = math.log1p(delta)
    for shift in shifts(values, is_paired=is_paired):
        result.outcomes.append(judge(shift.estimate, shift.p_different, shift.p_within(margin), alpha))
        low, high = shift.interval(1 - alpha) or (-math.inf, math.inf)
        result.covered += low <= result.truth <= high
        result.used += min(shift.sizes)
    return result


def sequentially(values: np.ndarray, ratio: float, alpha: float, delta: float) -> Tally:
    """Judge each experiment at each look until one decides."""
    result = Tally(math.log(ratio))
    margin, part = math.log1p(delta), share(alpha, LOOKS)
    for each in values:
        for blocks in LOOKS:
            shift = paired(each[:blocks, 1] - each[:blocks, 0])
            outcome = judge(shift.estimate, shift.p_different, shift.p_within(margin), part)
            if outcome != "undecided":
                break
        low, high = shift.interval(1 - part) or (-math.inf, math.inf)
        result.outcomes.append(outcome)
        result.covered += low <= result.truth <= high
        result.used += blocks
    return result


def pooled_rejections(times: np.ndarray, alpha: float) -> int:
    """Control: A/A experiments rejected by a rank-sum test of the iterations of one process of each side."""
    return int(np.sum(stats.mannwhitneyu(times[:, 0, 0], times[:, 0, 1], axis=1, method="asymptotic").pvalue <= alpha))


def rank_sum_rejections(values: np.ndarray, alpha: float) -> int:
    """Control: A/A experiments rejected by a rank-sum test of one median a process."""
    return int(np.sum(stats.mannwhitneyu(values[..., 0], values[..., 1], axis=1).pvalue <= alpha))


def bounds(count: int, n: int) -> tuple[float, float]:
    """Clopper and Pearson's 95% interval of a share."""
    found = stats.binomtest(count, n).proportion_ci(0.95, method="exact")
    return found.low, found.high


def percent(count: int, n: int) -> str:
    """A share with its interval."""
    low, high = bounds(count, n)
    return f"{count / n:6.1%} [{low:5.1%}, {high:5.1%}]"


@dataclass(frozen=True, slots=True)
class Setting:
    """What is common to all tables; see the options for what each means."""

    experiments: int
    blocks: int
    iterations: int
    alpha: float
    delta: float
    seed: int

    def draw(self, scenario: Scenario, ratio: float, blocks: int, *, in_turns: bool = True) -> np.ndarray:
        """Medians from the same draws for each true ratio."""
        rng = np.random.default_rng([self.seed, SCENARIOS.index(scenario), in_turns])
        return medians(scenario, self.experiments, blocks, self.iterations, ratio, rng, in_turns=in_turns)


def print_verdicts(setting: Setting, scenarios: list[Scenario], *, is_paired: bool) -> None:
    """The tool's rule at A/A, where the truth is delta and one and a half of it, and its power from small to large."""
    truths = (0.005, 0.01, 0.02, 0.05, 0.1)
    print(
        f"{'':12} {'called different at A/A':23} {'interval holds':14}  {'same':6}  {'same':22} {'same':>6}   higher\n"
        f"{'':12} {'':22}  {'at A/A':>6} {'delta':>6}   {'at A/A':6}  {'at delta':22} {'at 1.5':>6}   "
        + " ".join(f"{truth:6.1%}" for truth in truths)
    )
    for scenario in scenarios:
        ratios = [1 + each for each in (0, setting.delta, 1.5 * setting.delta, *truths)]
        equal, there, beyond, *powers = (
            tally(
                setting.draw(scenario, ratio, setting.blocks), ratio, setting.alpha, setting.delta, is_paired=is_paired
            )
            for ratio in ratios
        )
        print(
            f"{scenario.name:12} {percent(equal.count('lower', 'higher'), equal.n)}  {equal.covered / equal.n:6.1%} "
            f"{there.covered / there.n:6.1%}   {equal.share('same'):6.1%}  {percent(there.count('same'), there.n)} "
            f"{beyond.share('same'):6.1%}   " + " ".join(f"{each.share('higher'):6.1%}" for each in powers),
            flush=True,
        )


def print_looks(setting: Setting, scenarios: list[Scenario]) -> None:
    """The sequential rule: wrong verdicts at A/A, at 1% and at delta, right ones at A/A and 5%, and its blocks."""
    print(
        f"{'':12} {'called different at A/A':23} {'same':6} {'blocks':>6}   {'lower at 1%':22}   {'same at delta':22} "
        f"{'blocks':>6}   {'higher':>6} {'blocks':>6}\n{'':12} {'':22}  {'at A/A':6}{'':64}   {'at 5%':>6}"
    )
    for scenario in scenarios:
        equal, small, there, large = (
            sequentially(setting.draw(scenario, ratio, LOOKS[-1]), ratio, setting.alpha, setting.delta)
            for ratio in (1, 1.01, 1 + setting.delta, 1.05)
        )
        print(
            f"{scenario.name:12} {percent(equal.count('lower', 'higher'), equal.n)}  {equal.share('same'):6.1%} "
            f"{equal.blocks:6.1f}   {percent(small.count('lower'), small.n)}   {percent(there.count('same'), there.n)} "
            f"{there.blocks:6.1f}   {large.share('higher'):6.1%} {large.blocks:6.1f}",
            flush=True,
        )


def print_controls(setting: Setting, scenarios: list[Scenario]) -> None:
    """Rank-sum tests at A/A of iterations, and of medians in a fixed and in a random order."""
    print(f"{'':12} {'iterations of 1 process':24} {'medians, all A first':24} {'medians, in turns':24}")
    for scenario in scenarios:
        rng = np.random.default_rng([setting.seed, SCENARIOS.index(scenario)])
        times = step_times(scenario, setting.experiments, 1, setting.iterations, 1, rng)
        counts = (
            pooled_rejections(times, setting.alpha),
            rank_sum_rejections(setting.draw(scenario, 1, setting.blocks, in_turns=False), setting.alpha),
            rank_sum_rejections(setting.draw(scenario, 1, setting.blocks), setting.alpha),
        )
        print(
            f"{scenario.name:12} " + " ".join(f"{percent(each, setting.experiments):24}" for each in counts), flush=True
        )


@click.command()
@click.option("--experiments", default=2000, show_default=True)
@click.option("--blocks", default=10, show_default=True)
@click.option("--iterations", default=100, show_default=True)
@click.option("--alpha", default=0.05, show_default=True)
@click.option("--delta", default=0.02, show_default=True, help="What is too small to matter, as a share.")
@click.option("--only", type=click.Choice([each.name for each in SCENARIOS]), help="One scenario.")
@click.option("--seed", default=0, show_default=True)
@click.option("--quick", is_flag=True, help="500 experiments of 50 steps.")
def simulate(
    experiments: int, blocks: int, iterations: int, alpha: float, delta: float, only: str | None, seed: int, quick: bool
) -> None:
    """Print, for each scenario, false positives, coverage and power of the tool's rules, and of two bad ones."""
    start = time.perf_counter()
    if quick:
        experiments, iterations = 500, 50
    setting = Setting(experiments, blocks, iterations, alpha, delta, seed)
    scenarios = [each for each in SCENARIOS if only in (None, each.name)]
    still = [each for each in scenarios if not each.drifts]
    print(f"{experiments} experiments of {blocks} blocks of {iterations} steps; alpha {alpha}, delta {delta:.1%}")
    print("\nPaired by block, order drawn anew for each block")
    print_verdicts(setting, scenarios, is_paired=True)
    print("\nUnpaired, where nothing drifts")
    print_verdicts(setting, still, is_paired=False)
    print(f"\nWith looks after {', '.join(map(str, LOOKS))} blocks")
    print_looks(setting, scenarios)
    print("\nControls, by rank-sum test: share of A/A experiments that are called different")
    print_controls(setting, scenarios)
    print(f"\n{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    simulate()
