"""Fleets of which the truth is known: how often a node is named wrongly, and how often a slow one is found."""

import math
from statistics import NormalDist

import numpy as np
import pytest
from scipy import stats

from benchmarker.stats import outliers
from benchmarker.stats.median_interval import median_shift
from benchmarker.stats.verdict import holm

ALPHA, DELTA = 0.05, 0.02
MARGIN = math.log1p(DELTA)
CASES, ROUNDS, LOOKS = 4, 3, 2


def noise(rng, kind, *shape):
    """Trials' noise as logarithms; `heavy`: infinite fourth moment, and one trial of twenty is disturbed."""
    if kind == "quiet":
        return rng.normal(0, 0.0005, shape)
    return 0.005 * rng.standard_t(3, shape) + (rng.random(shape) < 0.05) * rng.exponential(0.1, shape)


def named(rng, truth, kind, rounds=ROUNDS):
    """The (node, case) that are named in a fleet with these true levels (nodes x cases), by both stages.

    Suspects that the first repeat does not confirm are all measured once more.
    """
    nodes = range(len(truth))
    levels = np.median(truth[..., None] + noise(rng, kind, *truth.shape, rounds), axis=-1)
    found = outliers.scores(levels, MARGIN)
    suspects = outliers.suspects(found, nodes)
    suspected = {unit for unit, _ in suspects}
    controls = outliers.controls(found, nodes, suspected)
    found_in = set()
    fresh = {node: np.zeros((truth.shape[1], 0)) for node in (*suspected, *controls)}
    for _ in range(LOOKS):
        rounds = outliers.enough_rounds(max(1, len(suspects)), ALPHA / LOOKS)
        drift = rng.normal(0, 0.05, (truth.shape[1], rounds))
        for node, before in fresh.items():
            more = truth[node][:, None] + drift + noise(rng, kind, truth.shape[1], rounds)
            fresh[node] = np.concatenate([before, more], axis=1)
        tested = []
        for unit, case in suspects:
            others = outliers.references(unit, controls, suspected, len(truth))
            shift = outliers.shift_of(fresh[unit][case], np.array([fresh[node][case] for node in others]))
            tested.append(shift.p_above(MARGIN) if found[unit, case] > 0 else shift.p_below(-MARGIN))
        found_in |= {cell for cell, p in zip(suspects, holm(tested), strict=True) if p <= ALPHA / LOOKS}
        if len(found_in) == len(suspects):
            break
    return found_in


def lower(number, of):
    """The lower 99.9% bound of a share (Clopper & Pearson)."""
    return stats.beta.ppf(0.001, number, of - number + 1) if number else 0.0


def wrongly(rng, truth, kind):
    """Whether a node is named in a case in which its true level is within δ of the median of the other nodes."""
    return any(
        abs(truth[node, case] - np.median(np.delete(truth[:, case], node))) <= MARGIN * (1 + 1e-9)
        for node, case in named(rng, truth, kind)
    )


def bound_of_rate(fleets, truth_of, kind):
    """The lower bound of the share of fleets in which a node is named wrongly."""
    rng = np.random.default_rng(7)
    return lower(sum(wrongly(rng, truth_of(rng), kind) for _ in range(fleets)), fleets)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["quiet", "heavy"])
@pytest.mark.parametrize(("nodes", "fleets"), [(4, 4000), (8, 1500), (64, 1000), (1000, 200)])
@pytest.mark.parametrize("spread", [0.0, DELTA, 2 * DELTA])
def test_nodes_like_the_others_are_named_no_oftener_than_told(nodes, fleets, kind, spread):
    bound = bound_of_rate(fleets, lambda rng: rng.uniform(-spread / 2, spread / 2, (nodes, CASES)), kind)
    assert bound <= ALPHA


@pytest.mark.slow
@pytest.mark.parametrize(("nodes", "fleets"), [(4, 1000), (64, 300), (1000, 60)])
def test_a_node_exactly_at_the_limit_is_named_no_oftener_than_told(nodes, fleets):
    """The worst case of the hypothesis: a suspect for certain, with a true shift of δ against equal others."""

    def truth(rng):
        levels = np.zeros((nodes, CASES))
        levels[0] = MARGIN
        return levels

    assert bound_of_rate(fleets, truth, "heavy") <= ALPHA


@pytest.mark.slow
@pytest.mark.parametrize("slow", [0.05, -0.05])
@pytest.mark.parametrize(("nodes", "fleets"), [(4, 300), (64, 200), (1000, 30)])
def test_five_percent_is_found_among_any_number(nodes, fleets, slow):
    rng = np.random.default_rng(8)
    found, others = 0, 0
    for _ in range(fleets):
        truth = rng.uniform(-DELTA / 4, DELTA / 4, (nodes, CASES))
        truth[1] += math.log1p(slow)
        names = {node for node, _ in named(rng, truth, "heavy")}
        found += 1 in names
        others += bool(names - {1})
    assert found / fleets >= 0.95
    assert lower(others, fleets) <= ALPHA


def test_a_fixed_percentage_calls_equal_nodes_slow():
    """What this is instead of: 5% off the mean of three trials, where one trial of twenty is disturbed."""
    rng = np.random.default_rng(9)
    levels = noise(rng, "heavy", 200, 64, ROUNDS).mean(axis=-1)
    assert np.mean(np.any(levels - levels.mean(axis=1, keepdims=True) > 0.05, axis=1)) > 0.8


def test_shares_of_the_sign_test_are_binomial():
    shift = median_shift([0.03, 0.05, 0.04, 0.01, 0.06, 0.03, 0.04])
    assert shift.p_above(0.02) == pytest.approx(8 / 2**7)
    assert shift.p_below(0.02) == pytest.approx(1 - 1 / 2**7)
    assert shift.estimate == 0.04
    assert shift.interval(1 - 2 / 2**7) == (0.01, 0.06)
    assert median_shift([1.0] * 5).interval(0.95) is None


@pytest.mark.parametrize(("tests", "fewest", "enough"), [(1, 5, 11), (2, 6, 12), (8, 8, 15), (100, 11, 19)])
def test_rounds_that_confirm(tests, fewest, enough):
    """p of all rounds, and of all but two, is a tail of the binomial distribution."""
    assert (outliers.fewest_rounds(tests, ALPHA), outliers.enough_rounds(tests, ALPHA)) == (fewest, enough)
    assert stats.binom.cdf(0, fewest, 0.5) <= ALPHA / tests < stats.binom.cdf(0, fewest - 1, 0.5)
    assert stats.binom.cdf(2, enough, 0.5) <= ALPHA / tests < stats.binom.cdf(2, enough - 1, 0.5)


def test_scores_are_shifts_over_the_limit():
    """Of five levels with the median 2%, the median absolute deviation is 1%, which is 1.4826% of a normal."""
    levels = np.array([[0.0], [0.01], [0.02], [0.03], [0.10]])
    limit = 0.014826 * NormalDist().inv_cdf(0.6)
    assert outliers.scores(levels, 0.0).ravel() == pytest.approx((levels.ravel() - 0.02) / limit, rel=1e-4)
    assert outliers.scores(levels, 0.2).ravel() == pytest.approx((levels.ravel() - 0.02) / 0.1)
    assert np.all(np.isnan(outliers.scores(np.full((3, 1), np.nan), 0.02)))


def test_half_of_the_nodes_are_suspects_at_most_and_all_their_suspicious_units():
    found = np.array([[0.5, 9.0], [2.0, 0.0], [3.0, np.nan], [0.1, -5.0], [0.2, 0.2], [4.0, 0.0]])
    assert outliers.suspects(found, range(6)) == [(0, 1), (3, 1), (5, 0)]
    assert outliers.suspects(found, [0, 0, 1, 1, 2, 2]) == [(0, 1), (1, 0)]
    assert outliers.suspects(found[:2], [0, 1]) == []
    assert outliers.suspects(found / 100, range(6)) == []


def test_controls_are_the_nodes_nearest_to_the_median():
    found = np.array([[0.5, 0.9], [2.0, 0.0], [0.3, np.nan], [0.1, -0.2], [np.nan, np.nan]])
    assert outliers.controls(found, range(5), {1}) == [3, 2, 0]
    many = np.linspace(0, 0.9, 300)[:, None]
    assert outliers.controls(many, range(300), {299}) == list(range(64))
    assert len(outliers.controls(many, range(300), set(range(200, 300)))) == 100


def test_a_suspect_is_judged_against_all_others_where_all_are_measured_again():
    assert outliers.references(1, [3, 0], {1, 2}, 4) == [0, 2, 3]
    assert outliers.references(1, [3, 0], {1, 2}, 5) == [0, 3]


def test_the_shift_is_that_of_the_rounds_that_both_have_and_a_drift_cancels():
    drift = np.array([0.0, 0.5, 1.0, 1.5, 2.0])
    reference = np.array([drift, drift + 0.01, drift - 0.01])
    reference[1, 2] = np.nan
    suspect = drift + 0.05
    suspect[4] = np.nan
    shift = outliers.shift_of(suspect, reference)
    assert shift.sizes == (4,)
    assert shift.points == pytest.approx([0.05, 0.05, 0.05, 0.055])
    assert outliers.shift_of(np.full(5, np.nan), reference) is None
