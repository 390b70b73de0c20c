import numpy as np
import pytest
from scipy import stats

from benchmarker.stats.classical import describe, rank_sum
from benchmarker.stats.verdict import enough
from benchmarker.stats.welch import welch


def drawn(seed, n, mean, deviation):
    """Normal values of exactly this mean and deviation."""
    values = np.random.default_rng(seed).standard_normal(n)
    return mean + deviation * (values - values.mean()) / values.std(ddof=1)


@pytest.mark.parametrize("n", [2, 5, 100])
def test_describe_equals_numpy(n):
    values = np.random.default_rng(n).lognormal(size=n)
    found = describe(list(values))
    assert (found.n, found.minimum, found.maximum) == (n, values.min(), values.max())
    assert found.mean == pytest.approx(np.mean(values))
    assert found.deviation == pytest.approx(np.sqrt(np.sum((values - np.mean(values)) ** 2) / (n - 1)))
    shares = (0.05, 0.25, 0.5, 0.75, 0.95)
    assert (found.p5, found.q1, found.median, found.q3, found.p95) == pytest.approx(np.quantile(values, shares))


def test_describe_of_a_closed_form():
    """0, 1, ..., 20: quantiles are 20 times the share, the variance is n (n + 1) / 12."""
    found = describe(np.arange(21))
    assert (found.mean, found.median, found.p5, found.q1, found.q3, found.p95) == (10, 10, 1, 5, 15, 19)
    assert found.deviation == pytest.approx(np.sqrt(21 * 22 / 12))


def test_one_value_has_no_deviation():
    found = describe([3.5])
    assert (found.n, found.mean, found.deviation, found.minimum, found.p5, found.maximum) == (
        1,
        3.5,
        None,
        3.5,
        3.5,
        3.5,
    )


@pytest.mark.parametrize("digits", [1, 8])
def test_rank_sum_equals_scipy(digits):
    """With one digit there are ties, for which the one test corrects and the other does not."""
    rng = np.random.default_rng(1)
    first, second = rng.normal(0.2, 1, 40).round(digits), rng.normal(0, 1, 60).round(digits)
    found = rank_sum(first, second)
    assert (found.statistic, found.p_value) == pytest.approx(tuple(stats.ranksums(first, second)))
    assert (found.u, found.u_p_value) == pytest.approx(
        tuple(stats.mannwhitneyu(first, second, use_continuity=True, method="asymptotic"))
    )


def test_rank_sum_by_hand():
    """Of 1, 2, 4 against 3, 5: U = 1, its mean 3, its variance 3 * 2 * 6 / 12 = 3, and z = -2 / √3."""
    found = rank_sum([1, 2, 4], [3, 5])
    assert found.u == 1
    assert found.statistic == pytest.approx(-2 / np.sqrt(3))


@pytest.mark.parametrize("seed", range(5))
def test_rank_sum_of_the_published_study(seed):
    """600 step times of einsum and of matmul, as their moments were published: the second is faster."""
    einsum, matmul = drawn(seed, 600, 6461.875, 504.9), drawn(seed + 100, 600, 5813.347, 455.8)
    assert describe(einsum).mean == pytest.approx(6461.875)
    assert describe(matmul).deviation == pytest.approx(455.8)
    found = rank_sum(einsum, matmul)
    assert 18 <= found.statistic <= 22
    assert rank_sum(matmul, einsum).statistic == -found.statistic
    assert found.p_value < 1e-70


ONE, TWO = np.array([0.1, 0.3, 0.2]), np.array([0.5, 0.9, 0.6, 0.8])


def test_it_is_welchs_test_where_both_have_several_values():
    found, known = welch(ONE, TWO), stats.ttest_ind(TWO, ONE, equal_var=False)
    assert found.p_different == pytest.approx(known.pvalue)
    assert found.interval(0.95) == pytest.approx(tuple(known.confidence_interval(0.95)))
    assert found.freedom == pytest.approx(known.df)
    assert found.p_within(0.7) == pytest.approx(
        max(
            stats.ttest_ind(TWO - limit, ONE, equal_var=False, alternative=side).pvalue
            for limit, side in ((-0.7, "greater"), (0.7, "less"))
        )
    )


def test_a_single_value_is_taken_to_scatter_as_the_others_do():
    for one, two in ((ONE[:1], TWO), (ONE, TWO[:1])):
        found, known = welch(one, two), stats.ttest_ind(two, one, equal_var=True)
        assert found.interval(0.95) == pytest.approx(tuple(known.confidence_interval(0.95)))
        assert found.p_different == pytest.approx(known.pvalue)


def test_values_that_do_not_scatter_show_nothing():
    found = welch(np.zeros(2), np.ones(2))
    assert (found.estimate, found.interval(0.95), found.p_different, found.p_within(9.0)) == (1.0, None, 1.0, 1.0)


def test_few_values_need_more_than_the_normal_distribution_tells():
    """With 2 runs a side that differ by three of their deviations, 4 a side decide four times in five; normal: 2."""
    found = welch(np.array([0.0, 1.0]), np.array([2.0, 3.0]))
    assert enough(found, 0.02, 0.05) == 4
