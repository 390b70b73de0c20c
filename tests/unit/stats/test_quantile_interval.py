"""Intervals of quantiles and shares, of independent values and of those that depend on each other."""

import numpy as np
import pytest
from scipy import stats
from support.serving import waiting_cdf

from benchmarker.stats.median_interval import median_interval
from benchmarker.stats.quantile_interval import quantile, share


@pytest.mark.parametrize("n", [1, 5, 6, 13, 19])
def test_the_interval_of_the_median_of_few_values_is_that_of_the_sign_test(n):
    values = np.random.default_rng(n).random(n)
    found = quantile(values, 0.5)
    assert (found.low, found.high) == (median_interval(values) or (None, None))


def test_a_quantile_is_a_value_and_few_values_leave_its_upper_end_open():
    rng = np.random.default_rng(1)
    assert quantile(np.arange(1.0, 16.0), 0.5).value == 8
    assert quantile(rng.permutation(100).astype(float), 0.5).value == 49
    assert quantile(rng.permutation(360).astype(float), 0.99).high is None  # 0.99**360 > 0.025
    assert quantile(rng.permutation(2000).astype(float), 0.99).high < 1999


def test_values_that_rise_all_the_time_say_less():
    rising, shuffled = np.arange(368.0), np.random.default_rng(1).permutation(368).astype(float)
    assert share(rising > 99, rising).low < share(shuffled > 99, shuffled).low - 0.1


def test_values_that_are_all_equal_have_an_interval_of_no_width():
    found = quantile(np.full(1000, 0.5), 0.9)
    assert (found.value, found.low, found.high) == (0.5, 0.5, 0.5)


def test_failures_are_slower_than_everything():
    found = quantile(np.array([1.0, 2.0, np.inf, 3.0]), 0.9)
    assert found.value == np.inf


def test_the_interval_of_a_share_is_that_of_clopper_and_pearson():
    met = np.array([True] * 17 + [False] * 2)
    exact = stats.binomtest(17, 19).proportion_ci(method="exact")
    found = share(met, met)
    assert (found.value, found.low, found.high) == pytest.approx((17 / 19, exact.low, exact.high))
    assert share(np.ones(10, bool), np.ones(10)).high == 1.0
    assert share(np.zeros(10, bool), np.ones(10)).low == 0.0


def waits(rng, n, load):
    """Waiting times in M/D/1 by Lindley's recursion, in times of service, from an empty queue."""
    found, wait = np.empty(n), 0.0
    for at, gap in enumerate(rng.exponential(1 / load, n)):
        found[at] = wait
        wait = max(0.0, wait + 1 - gap)
    return found


@pytest.mark.parametrize(
    ("draw", "truth"),
    [
        (lambda rng: rng.exponential(size=420), stats.expon.cdf(3)),
        (lambda rng: waits(rng, 420, 0.7), waiting_cdf(3.0, 0.7, 1.0)),
    ],
    ids=["independent", "in a queue"],
)
def test_intervals_contain_the_truth_nearly_as_often_as_they_say(draw, truth):
    """Taken as independent, waits in a queue have intervals that contain the truth in 43% of the cases."""
    rng, inside = np.random.default_rng(3), {"quantile": 0, "share": 0}
    for _ in range(200):
        values = draw(rng)
        limit, below = quantile(values, truth), share(values <= 3, values)
        inside["quantile"] += limit.low <= 3 and (limit.high is None or limit.high >= 3)
        inside["share"] += below.low <= truth <= below.high
    assert all(count >= 0.92 * 200 for count in inside.values()), inside


def test_nothing_has_no_estimate():
    for of in (lambda values: quantile(values, 0.5), lambda values: share(values, values)):
        with pytest.raises(ValueError, match="no value"):
            of(np.zeros(0))
