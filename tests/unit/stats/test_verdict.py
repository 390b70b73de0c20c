import importlib.util
import itertools
import sys
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarker.stats.shift import paired, unpaired
from benchmarker.stats.verdict import MOST_SUGGESTED, enough, holm, judge, looks, looks_at, share

MARGIN = 0.02
P_VALUES = st.lists(st.floats(0, 1), min_size=1, max_size=6)
EXAMPLES = settings(deadline=None, derandomize=True)


@pytest.mark.parametrize(
    ("estimate", "p_different", "p_same", "outcome"),
    [
        (0.01, 0.001, 0.025, "same"),
        (-0.01, 0.001, 0.0, "same"),
        (0.01, 0.05, 0.026, "higher"),
        (-0.01, 0.05, 0.026, "lower"),
        (0.01, 0.051, 0.026, "undecided"),
        (0.0, 1.0, 1.0, "undecided"),
    ],
)
def test_the_rules_are_asked_in_order(estimate, p_different, p_same, outcome):
    assert judge(estimate, p_different, p_same, 0.05) == outcome


def test_alpha_is_asked():
    assert judge(0.1, 0.02, 1.0, 0.05) == "higher"
    assert judge(0.1, 0.02, 1.0, 0.01) == "undecided"
    assert judge(0.1, 0.02, 0.02, 0.01) == "undecided"


@EXAMPLES
@given(st.lists(st.integers(-60, 60), min_size=1, max_size=12), st.sampled_from([0.05, 0.01]), st.booleans())
def test_the_interval_of_that_level_shows_the_verdict(thousandths, alpha, is_paired):
    values = np.array(thousandths) / 1000
    found = paired(values) if is_paired else unpaired(values[::2], values[1::2]) if len(values) > 1 else paired(values)
    outcome = judge(found.estimate, found.p_different, found.p_within(MARGIN), alpha)
    low, high = found.interval(1 - alpha) or (-np.inf, np.inf)
    assert (outcome == "same") == (-MARGIN < low <= high < MARGIN)
    assert (outcome in ("lower", "higher")) == (outcome != "same" and not low <= 0 <= high)


def test_a_small_clear_difference_is_the_same_and_a_larger_one_is_not():
    spread = np.linspace(-0.001, 0.001, 10)
    for centre, outcome in ((0.01, "same"), (-0.01, "same"), (0.03, "higher"), (-0.03, "lower"), (0.0195, "higher")):
        found = paired(centre + spread)
        assert judge(found.estimate, found.p_different, found.p_within(0.02), 0.01) == outcome


def test_holm_of_a_published_example():
    """The four hypotheses of Wikipedia's Holm-Bonferroni method: of these, the first and the last are rejected."""
    adjusted = holm([0.01, 0.04, 0.03, 0.005])
    assert adjusted == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []
    assert holm([0.6, 0.7]) == [1, 1]


@EXAMPLES
@given(P_VALUES)
def test_holm_is_bonferroni_of_every_subset(p_values):
    """A claim holds where each set of claims that it is in holds by Bonferroni (closed testing)."""
    expected = [0.0] * len(p_values)
    for size in range(1, len(p_values) + 1):
        for chosen in itertools.combinations(range(len(p_values)), size):
            together = min(1, size * min(p_values[index] for index in chosen))
            for index in chosen:
                expected[index] = max(expected[index], together)
    assert holm(p_values) == pytest.approx(expected)


@EXAMPLES
@given(P_VALUES, st.randoms(use_true_random=False))
def test_holm_keeps_the_order_and_only_raises(p_values, random):
    adjusted = holm(p_values)
    assert all(0 <= before <= after <= 1 for before, after in zip(p_values, adjusted, strict=True))
    by_size = [adjusted[index] for index in np.argsort(p_values, kind="stable")]
    assert by_size == sorted(by_size)
    order = random.sample(range(len(p_values)), len(p_values))
    assert holm([p_values[index] for index in order]) == [adjusted[index] for index in order]


def scores(n):
    """Values of mean 0 and standard deviation 1, as evenly placed as normal ones can be."""
    found = np.array([NormalDist().inv_cdf((index + 0.5) / n) for index in range(n)])
    return found / found.std(ddof=1)


@pytest.mark.parametrize(
    ("n", "truth", "deviation"),
    [(3, 0.03, 0.05), (4, 0.0, 0.03), (6, 0.02, 0.03), (10, 0.0, 0.03), (10, 0.0005, 0.03), (10, 0.03, 0.05)],
)
def test_the_suggested_rounds_decide(n, truth, deviation):
    suggested = enough(paired(truth + deviation * scores(n)), MARGIN, 0.05)
    assert suggested > n + 1
    draws = np.random.default_rng(n).normal(truth, deviation, (1000, suggested))
    assert 0.65 <= decided(paired(each) for each in draws) <= 0.95


@pytest.mark.parametrize(
    ("sizes", "truth", "deviation"),
    [
        ((3, 3), 0.02, 0.03),
        ((4, 4), 0.03, 0.05),
        ((5, 30), 0.03, 0.05),
        ((10, 10), 0.0, 0.03),
        ((10, 10), -0.005, 0.03),
        ((15, 15), 0.02, 0.03),
    ],
)
def test_the_suggested_trials_decide(sizes, truth, deviation):
    baseline, contender = (deviation * scores(n) for n in sizes)
    suggested = enough(unpaired(baseline, truth + contender), MARGIN, 0.05)
    assert suggested > max(min(sizes) + 1, 4)
    draws = np.random.default_rng(sizes).normal(0, deviation, (1000, 2, suggested))
    assert 0.65 <= decided(unpaired(each[0], truth + each[1]) for each in draws) <= 0.95


def decided(shifts):
    outcomes = [judge(each.estimate, each.p_different, each.p_within(MARGIN), 0.05) for each in shifts]
    return 1 - outcomes.count("undecided") / len(outcomes)


@pytest.mark.parametrize("truth", [0.0, 0.5])
def test_no_fewer_are_suggested_than_can_decide(truth):
    """Six rounds, or four trials a side, are the fewest that reach 0.05: 2/2**6 and 2/70, not 2/2**5 and 2/20."""
    assert enough(paired(np.array([truth])), MARGIN, 0.05) == 6
    assert enough(paired(truth + np.array([-0.001, 0, 0.001])), MARGIN, 0.05) == 6
    assert enough(unpaired(np.zeros(1), np.array([truth])), MARGIN, 0.05) == 4
    assert enough(unpaired(np.array([0.0, 0.001]), truth + np.array([0.0, 0.001])), MARGIN, 0.05) == 4
    assert enough(paired(np.full(10, truth)), MARGIN, 0.05) == 11
    assert enough(paired(np.full(6, truth)), MARGIN, 0.01) == 8


def test_nothing_is_suggested_beyond_a_thousand():
    """Where the truth is the margin itself, 1000 rounds decide up to a spread of √1000 / (1.96 + 0.84) margins."""
    limit = 1000**0.5 / (1.96 + 0.84)
    assert enough(paired(MARGIN + 0.8 * limit * MARGIN * scores(20)), MARGIN, 0.05) <= MOST_SUGGESTED
    assert enough(paired(MARGIN + 1.2 * limit * MARGIN * scores(20)), MARGIN, 0.05) is None
    assert enough(paired(scores(20)), MARGIN, 0.05) is None
    assert enough(paired(np.zeros(10)), 0.0, 0.05) is None
    assert enough(paired(MARGIN + limit * MARGIN * scores(1000)), MARGIN, 0.05) is None


def test_the_suggestion_does_not_depend_on_the_direction_or_the_unit():
    values = 0.013 + 0.03 * scores(9)
    assert enough(paired(values), MARGIN, 0.05) == enough(paired(-values), MARGIN, 0.05)
    assert enough(paired(1024 * values), 1024 * MARGIN, 0.05) == enough(paired(values), MARGIN, 0.05)


def test_the_estimate_is_computed_once_for_all_numbers_that_are_tried(monkeypatch):
    medians = []
    plain = np.median
    monkeypatch.setattr(np, "median", lambda values: medians.append(values) or plain(values))
    assert enough(paired(scores(20)), MARGIN, 0.05) is None
    assert len(medians) == 1


ROOT = Path(__file__).parents[3]
DAY_MIN = 1440.0


@pytest.fixture(scope="module")
def simulated():
    spec = importlib.util.spec_from_file_location(
        "drifting_sides", ROOT / "benchmarks/verdicts/calibration/drifting_sides.py"
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look for it
    spec.loader.exec_module(module)

    def covered(conditions, runs, pause_min=DAY_MIN, pairs=2000):
        rng = np.random.default_rng([7, *runs])
        return module.covered(*module.sides(conditions, pairs, runs, pause_min, rng))

    return module.CONDITIONS, covered


def test_two_runs_a_side_or_more_cover_what_changes_between_them(simulated):
    """But for a single lasting neighbour, whom two runs a side can all meet on one side and none on the other."""
    conditions, covered = simulated
    shares = {each.name: covered(each, (2, 2)) for each in conditions}
    assert 0.86 < shares.pop("one neighbour, 3 h") < 0.93
    assert min(shares.values()) >= 0.93
    assert min(covered(each, (3, 3)) for each in conditions) >= 0.93


def test_one_run_a_side_does_not(simulated):
    """This is why such verdicts are provisional."""
    conditions, covered = simulated
    assert max(covered(each, (1, 1), pairs=200) for each in conditions) < 0.9
    assert min(covered(each, (1, 1), pairs=200) for each in conditions) < 0.3


def test_runs_that_are_near_each_other_do_not_show_what_changes_slowly(simulated):
    conditions, covered = simulated
    (slow,) = (each for each in conditions if each.name == "drift, 6 h")
    assert covered(slow, (3, 3), pause_min=30) < 0.87


def test_the_machine_changes_as_described(simulated):
    """Its spread, its memory, and the share of the time in which neighbours are busy."""
    conditions, _ = simulated
    rng, times = np.random.default_rng(1), np.broadcast_to([0.0, 60.0], (20000, 2))
    drift = next(each for each in conditions if each.name == "drift, 1 h")(times, rng)
    assert drift.std(axis=0) == pytest.approx([0.05, 0.05], rel=0.05)
    assert np.corrcoef(drift.T)[0, 1] == pytest.approx(np.exp(-1), abs=0.03)
    busy = next(each for each in conditions if each.name == "one neighbour, 3 h")(times, rng) / 0.3
    assert busy.mean(axis=0) == pytest.approx([1 / 3, 1 / 3], abs=0.02)
    assert np.corrcoef(busy.T)[0, 1] == pytest.approx(np.exp(-60 * (1 / 180 + 1 / 360)), abs=0.03)


@pytest.mark.parametrize("alpha", [0.05, 0.05 / 7, 0.05 / 3, 1e-4])
@pytest.mark.parametrize("most", [30, 100])
def test_the_first_look_is_the_earliest_that_can_decide(alpha, most):
    """After n rounds, the smallest two-sided p-value is 2/2^n: every difference has the same sign."""
    chosen = looks_at(alpha, most)
    assert 2 / 2 ** chosen[0] <= share(alpha, chosen)
    earlier = looks(most, [chosen[0] - 1])
    assert 2 / 2 ** earlier[0] > share(alpha, earlier)
    assert chosen[-1] == most
    assert chosen == sorted(set(chosen))
