"""Intervals of quantiles and shares, of independent values and of those that depend on each other."""

import numpy as np
import pytest
from scipy import stats

from benchmarker.stats.median_interval import median_interval
from benchmarker.stats.quantile_interval import quantile, share


@pytest.mark.parametrize("n", [1, 5, 6, 13, 39])
def test_the_interval_of_the_median_of_few_values_is_that_of_the_sign_test(n):
    values = np.random.default_rng(n).random(n)
    found = quantile(values, 0.5)
    assert (found.low, found.high) == (median_interval(values) or (None, None))


def test_a_quantile_is_a_value_and_few_values_leave_its_upper_end_open():
    shuffled = np.random.default_rng(1).permutation(368).astype(float)
    assert quantile(np.arange(1.0, 31.0), 0.5).value == 15
    assert 0.99**368 < 0.025 < 0.99**367
    assert (quantile(shuffled, 0.99).value, quantile(shuffled, 0.99).high) == (364, 367)
    assert quantile(shuffled[:367], 0.99).high is None


def test_values_that_rise_all_the_time_say_less():
    rising, shuffled = np.arange(368.0), np.random.default_rng(1).permutation(368).astype(float)
    assert quantile(rising, 0.99).high is None
    assert share(rising > 99).low < share(shuffled > 99).low - 0.1


def test_failures_are_slower_than_everything():
    found = quantile(np.array([1.0, 2.0, np.inf, 3.0]), 0.9)
    assert found.value == np.inf


def test_the_interval_of_a_share_is_that_of_clopper_and_pearson():
    met = np.array([True] * 27 + [False] * 3)
    exact = stats.binomtest(27, 30).proportion_ci(method="exact")
    found = share(met)
    assert (found.value, found.low, found.high) == pytest.approx((0.9, exact.low, exact.high))
    assert share(np.ones(10, bool)).high == 1.0
    assert share(np.zeros(10, bool)).low == 0.0


@pytest.mark.parametrize("dependence", [0.0, 0.9])
def test_intervals_contain_the_truth_as_often_as_they_say(dependence):
    """An autoregressive series; taken as independent, its intervals contain the truth in 45% of these cases."""
    rng, n, inside = np.random.default_rng(3), 1000, {"p90": 0, "share": 0}
    limit = stats.norm.ppf(0.9)
    for _ in range(300):
        steps = rng.normal(size=n) * np.sqrt(1 - dependence**2)
        values = np.empty(n)
        last = rng.normal()
        for at in range(n):
            values[at] = last = dependence * last + steps[at]
        p90, below = quantile(values, 0.9), share(values <= limit)
        inside["p90"] += p90.low <= limit <= p90.high
        inside["share"] += below.low <= 0.9 <= below.high
    assert all(count >= 0.91 * 300 for count in inside.values()), inside


@pytest.mark.parametrize("of", [lambda values: quantile(values, 0.5), share])
def test_nothing_has_no_estimate(of):
    with pytest.raises(ValueError, match="no value"):
        of(np.zeros(0))
