"""Error rates of the tool's rule where the truth is known; the draws are those of benchmarks/verdicts/calibration."""

import importlib.util
import math
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarker.stats.classical import rank_sum
from benchmarker.stats.shift import paired

ROOT = Path(__file__).parents[3]
ALPHA, DELTA = 0.05, 0.02
EXPERIMENTS = 4000


def load(name):
    """A module of the calibration, by path."""
    spec = importlib.util.spec_from_file_location(name, ROOT / f"benchmarks/verdicts/calibration/{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # the one imports the other by this name
    spec.loader.exec_module(module)
    return module


scenarios = load("scenarios")
simulate = load("simulate")
SCENARIOS = {scenario.name: scenario for scenario in scenarios.SCENARIOS}
DRIFTING = [scenario for scenario in scenarios.SCENARIOS if scenario.drifts]


def medians(scenario, rounds, ratio, **given):
    return scenarios.medians(scenario, EXPERIMENTS, rounds, 50, ratio, np.random.default_rng(1), **given)


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [6, 10])
@pytest.mark.parametrize("scenario", scenarios.SCENARIOS, ids=lambda scenario: scenario.name)
def test_verdicts_are_wrong_no_oftener_than_told(scenario, rounds):
    equal = simulate.tally(medians(scenario, rounds, 1), 1, ALPHA, DELTA)
    assert simulate.bounds(equal.count("lower", "higher"), equal.n)[1] <= 0.065
    # Nor were they, if nothing could be called the same: the p-value is small where the interval leaves 0 out.
    assert simulate.bounds(equal.n - equal.covered, equal.n)[1] <= 0.065
    different = simulate.tally(medians(scenario, rounds, 1 + DELTA), 1 + DELTA, ALPHA, DELTA)
    assert different.share("same") <= 0.06
    assert different.covered >= 0.93 * different.n


@pytest.mark.slow
def test_verdicts_are_right_where_there_is_little_noise():
    """A rule that never decides would pass the tests above."""
    quiet = SCENARIOS["quiet"]
    assert simulate.tally(medians(quiet, 10, 1), 1, ALPHA, DELTA).share("same") > 0.99
    for ratio, outcome in ((1.03, "higher"), (1 / 1.03, "lower")):
        assert simulate.tally(medians(quiet, 10, ratio), ratio, ALPHA, DELTA).share(outcome) > 0.99


@pytest.mark.slow
@pytest.mark.parametrize("scenario", scenarios.SCENARIOS, ids=lambda scenario: scenario.name)
def test_iterations_taken_as_independent_are_wrong(scenario):
    times = scenarios.step_times(scenario, 1000, 1, 100, 1, np.random.default_rng(1))
    assert simulate.pooled_rejections(times, ALPHA) >= 300


@pytest.mark.slow
@pytest.mark.parametrize("scenario", DRIFTING, ids=lambda scenario: scenario.name)
def test_all_of_one_side_first_is_wrong_where_something_drifts(scenario):
    assert simulate.rank_sum_rejections(medians(scenario, 10, 1, in_turns=False), ALPHA) >= 0.3 * EXPERIMENTS


@pytest.mark.slow
@pytest.mark.parametrize("name", ["plain", "ties", "all at once"])
def test_looks_are_wrong_no_oftener_than_told(name):
    """Five looks at 0.01 each are wrong in at most 0.05; most of them repeat what an earlier one saw."""
    equal, different = (
        scenarios.medians(SCENARIOS[name], 2000, 30, 50, ratio, np.random.default_rng(2)) for ratio in (1, 1 + DELTA)
    )
    found = simulate.sequentially(equal, 1, ALPHA, 0)
    assert simulate.bounds(found.count("lower", "higher"), found.n)[1] <= 0.05
    assert 25 < found.rounds <= 30
    found = simulate.sequentially(different, 1 + DELTA, ALPHA, DELTA)
    assert simulate.bounds(found.count("same"), found.n)[1] <= 0.05
    assert 8 <= found.rounds < 25


@pytest.mark.parametrize("iterations", [20, 21])
def test_duplicated_iterations_do_not_narrow_the_interval(iterations):
    """A process's steps each counted twice are no new processes; a test that takes them for new ones is misled."""
    times = scenarios.step_times(SCENARIOS["AR(1) 0.9"], 20, 10, iterations, 1.01, np.random.default_rng(3))
    for each, twice in zip(times, np.repeat(times, 2, axis=-1), strict=True):
        once, again = (paired(np.diff(np.log(np.median(values, axis=-1)))[:, 0]) for values in (each, twice))
        for level in (0.5, 0.95):
            assert again.interval(level) == once.interval(level)
        assert (again.estimate, again.p_different) == (once.estimate, once.p_different)
        misled, usual = rank_sum(*twice[0]), rank_sum(*each[0])
        assert misled.p_value < usual.p_value


@pytest.mark.parametrize("scenario", scenarios.SCENARIOS, ids=lambda scenario: scenario.name)
def test_the_ratio_moves_all_draws_of_one_side(scenario):
    slow, usual = (
        scenarios.step_times(scenario, 3, 4, 50, ratio, np.random.default_rng(5)) for ratio in (math.sqrt(2), 1)
    )
    assert np.array_equal(slow[:, :, 0], usual[:, :, 0])
    assert slow[:, :, 1] == pytest.approx(math.sqrt(2) * usual[:, :, 1], abs=1.3 * scenario.tick + 1e-12)


def test_the_draws_are_as_described():
    """Spreads between and within processes, correlation, drift and disturbances of many draws."""
    rng = np.random.default_rng(6)
    draw = simulate.Scenario
    logs = np.log(scenarios.step_times(draw("", between=0.1, within=0.2, rho=0.8), 200, 10, 100, 1, rng))
    assert logs.mean(axis=-1).std() == pytest.approx(math.sqrt(0.1**2 + 0.2**2 / 100 * 1.8 / 0.2), rel=0.05)
    steps = logs - logs.mean(axis=-1, keepdims=True)
    assert np.mean(steps[..., 1:] * steps[..., :-1]) / np.mean(steps**2) == pytest.approx(0.8, abs=0.03)
    for level, spread in (("t3", 0.1), ("bimodal", math.sqrt(0.1**2 + 0.21 * math.log(1.2) ** 2))):
        logs = np.log(scenarios.step_times(draw("", level=level, between=0.1, within=0), 2000, 10, 1, 1, rng))
        assert logs.std() == pytest.approx(spread, rel=0.1)
    times = scenarios.step_times(draw("", between=0, within=0, disturbed=0.05), 10, 10, 100, 1, rng)
    assert set(np.unique(times)) == {1, 3}
    assert np.mean(times == 3) == pytest.approx(0.05, abs=0.01)
    times = scenarios.step_times(draw("", tick=0.25), 10, 10, 100, 1, rng)
    assert set(np.unique(times)) <= {0.75, 1, 1.25}


def test_the_order_is_drawn_anew_for_each_round():
    trend = simulate.Scenario("", between=0, within=0, trend=19.0)
    places = np.round(np.log(scenarios.step_times(trend, 500, 10, 1, 1, np.random.default_rng(7)))[..., 0])
    assert np.array_equal(np.sort(places.reshape(500, -1)), np.broadcast_to(np.arange(20), (500, 20)))
    assert np.array_equal(places.min(axis=-1), np.broadcast_to(2 * np.arange(10), (500, 10)))
    assert np.mean(places[..., 0] < places[..., 1]) == pytest.approx(0.5, abs=0.03)
    fixed = scenarios.step_times(trend, 1, 10, 1, 1, np.random.default_rng(7), in_turns=False)[0, ..., 0]
    assert np.array_equal(np.round(np.log(fixed)).T.ravel(), np.arange(20))
