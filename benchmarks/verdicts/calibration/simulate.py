"""Measure how often the tool's verdicts are wrong, by simulation with a known true difference."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import click
import numpy as np
from scenarios import SCENARIOS, Scenario, medians, step_times
from scipy import stats

from benchmarker.stats.shift import Shift, paired, unpaired
from benchmarker.stats.verdict import LOOKS, judge, share


def shifts(values: np.ndarray, *, is_paired: bool = True) -> Iterator[Shift]:
    """Yield the shift from A to B of each experiment, as the tool estimates it."""
    for each in values:
        yield paired(each[:, 1] - each[:, 0]) if is_paired else unpaired(each[:, 0], each[:, 1])


@dataclass(slots=True)
class Tally:
    """The verdicts on many experiments with one true difference."""

    truth: float
    outcomes: list[str] = field(default_factory=list)
    covered: int = 0
    """Number of experiments whose interval contains the truth."""
    used: int = 0
    """Rounds of all experiments together."""

    @property
    def rounds(self) -> float:
        """Mean number of rounds of an experiment."""
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
    """Judge each experiment by the tool's rule; an experiment with too few values for an interval counts as covered."""
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
        for rounds in LOOKS:
            shift = paired(each[:rounds, 1] - each[:rounds, 0])
            outcome = judge(shift.estimate, shift.p_different, shift.p_within(margin), part)
            if outcome != "undecided":
                break
        low, high = shift.interval(1 - part) or (-math.inf, math.inf)
        result.outcomes.append(outcome)
        result.covered += low <= result.truth <= high
        result.used += rounds
    return result


def pooled_rejections(times: np.ndarray, alpha: float) -> int:
    """Control: A/A experiments rejected by a rank-sum test of the iterations of one process of each side."""
    return int(np.sum(stats.mannwhitneyu(times[:, 0, 0], times[:, 0, 1], axis=1, method="asymptotic").pvalue <= alpha))


def rank_sum_rejections(values: np.ndarray, alpha: float) -> int:
    """Control: A/A experiments rejected by a rank-sum test of one median per process."""
    return int(np.sum(stats.mannwhitneyu(values[..., 0], values[..., 1], axis=1).pvalue <= alpha))


def bounds(count: int, n: int) -> tuple[float, float]:
    """Return the 95% Clopper-Pearson interval of a share."""
    found = stats.binomtest(count, n).proportion_ci(0.95, method="exact")
    return found.low, found.high


def percent(count: int, n: int) -> str:
    """Return a share with its interval, as text."""
    low, high = bounds(count, n)
    return f"{count / n:6.1%} [{low:5.1%}, {high:5.1%}]"


@dataclass(frozen=True, slots=True)
class Setting:
    """The settings of all tables; see the options for their meaning."""

    experiments: int
    rounds: int
    iterations: int
    alpha: float
    delta: float
    seed: int

    def draw(self, scenario: Scenario, ratio: float, rounds: int, *, in_turns: bool = True) -> np.ndarray:
        """Return medians; every true ratio uses the same random numbers."""
        rng = np.random.default_rng([self.seed, SCENARIOS.index(scenario), in_turns])
        return medians(scenario, self.experiments, rounds, self.iterations, ratio, rng, in_turns=in_turns)


def print_verdicts(setting: Setting, scenarios: list[Scenario], *, is_paired: bool) -> None:
    """Print the results of the tool's rule at A/A, at delta and at 1.5 delta, and its power from small to large."""
    truths = (0.005, 0.01, 0.02, 0.05, 0.1)
    print(
        f"{'':12} {'called different at A/A':23} {'coverage':14}  {'same':6}  {'same':22} {'same':>6}   higher\n"
        f"{'':12} {'':22}  {'at A/A':>6} {'delta':>6}   {'at A/A':6}  {'at delta':22} {'at 1.5':>6}   "
        + " ".join(f"{truth:6.1%}" for truth in truths)
    )
    for scenario in scenarios:
        ratios = [1 + each for each in (0, setting.delta, 1.5 * setting.delta, *truths)]
        equal, there, beyond, *powers = (
            tally(
                setting.draw(scenario, ratio, setting.rounds), ratio, setting.alpha, setting.delta, is_paired=is_paired
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
    """Print wrong verdicts of the sequential rule at A/A, 1% and delta, right ones at A/A and 5%, and its rounds."""
    print(
        f"{'':12} {'called different at A/A':23} {'same':6} {'rounds':>6}   {'lower at 1%':22}   {'same at delta':22} "
        f"{'rounds':>6}   {'higher':>6} {'rounds':>6}\n{'':12} {'':22}  {'at A/A':6}{'':64}   {'at 5%':>6}"
    )
    for scenario in scenarios:
        equal, small, there, large = (
            sequentially(setting.draw(scenario, ratio, LOOKS[-1]), ratio, setting.alpha, setting.delta)
            for ratio in (1, 1.01, 1 + setting.delta, 1.05)
        )
        print(
            f"{scenario.name:12} {percent(equal.count('lower', 'higher'), equal.n)}  {equal.share('same'):6.1%} "
            f"{equal.rounds:6.1f}   {percent(small.count('lower'), small.n)}   {percent(there.count('same'), there.n)} "
            f"{there.rounds:6.1f}   {large.share('higher'):6.1%} {large.rounds:6.1f}",
            flush=True,
        )


def print_controls(setting: Setting, scenarios: list[Scenario]) -> None:
    """Print rank-sum tests at A/A of iterations, and of medians in a fixed and in a random order."""
    print(f"{'':12} {'iterations of 1 process':24} {'medians, all A first':24} {'medians, in turns':24}")
    for scenario in scenarios:
        rng = np.random.default_rng([setting.seed, SCENARIOS.index(scenario)])
        times = step_times(scenario, setting.experiments, 1, setting.iterations, 1, rng)
        counts = (
            pooled_rejections(times, setting.alpha),
            rank_sum_rejections(setting.draw(scenario, 1, setting.rounds, in_turns=False), setting.alpha),
            rank_sum_rejections(setting.draw(scenario, 1, setting.rounds), setting.alpha),
        )
        print(
            f"{scenario.name:12} " + " ".join(f"{percent(each, setting.experiments):24}" for each in counts), flush=True
        )


@click.command()
@click.option("--experiments", default=2000, show_default=True)
@click.option("--rounds", default=10, show_default=True, help="Rounds of an experiment.")
@click.option("--iterations", default=100, show_default=True)
@click.option("--alpha", default=0.05, show_default=True)
@click.option("--delta", default=0.02, show_default=True, help="Largest difference that does not matter, as a share.")
@click.option("--only", type=click.Choice([each.name for each in SCENARIOS]), help="One scenario.")
@click.option("--seed", default=0, show_default=True)
@click.option("--quick", is_flag=True, help="500 experiments of 50 steps.")
def simulate(
    experiments: int, rounds: int, iterations: int, alpha: float, delta: float, only: str | None, seed: int, quick: bool
) -> None:
    """Print false positives, coverage and power of the tool's rules and of two bad rules, for each scenario."""
    start = time.perf_counter()
    if quick:
        experiments, iterations = 500, 50
    setting = Setting(experiments, rounds, iterations, alpha, delta, seed)
    scenarios = [each for each in SCENARIOS if only in (None, each.name)]
    still = [each for each in scenarios if not each.drifts]
    print(
        f"{experiments} experiments of {rounds} rounds, {iterations} steps a process; alpha {alpha}, delta {delta:.1%}"
    )
    print("\nPaired by round, random order in every round")
    print_verdicts(setting, scenarios, is_paired=True)
    print("\nUnpaired, scenarios without drift")
    print_verdicts(setting, still, is_paired=False)
    print(f"\nWith looks after {', '.join(map(str, LOOKS))} rounds")
    print_looks(setting, scenarios)
    print("\nControls, by rank-sum test: share of A/A experiments called different")
    print_controls(setting, scenarios)
    print(f"\n{time.perf_counter() - start:.0f} s")
