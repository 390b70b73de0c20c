import itertools
import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as stn
from scipy import stats

from benchmarker import UserError
from benchmarker.stats import shift
from benchmarker.stats.shift import fewest, paired, rank_sum_null, signed_rank_null, unpaired

ALPHAS = (0.001, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3)
WHOLE = st.integers(-(2**20), 2**20)
"""Whole numbers, for which sums, halves and differences are exact."""

EXAMPLES = settings(deadline=None, derandomize=True)


def values(smallest=1, elements=WHOLE):
    return stn.arrays(np.float64, st.integers(smallest, 12), elements=elements)


@pytest.mark.parametrize("n", range(5, 26))
def test_paired_equals_scipy(n):
    for seed in range(5):
        differences = np.random.default_rng([n, seed]).normal(0.3, 1, n)
        found = paired(differences)
        assert found.p_different == pytest.approx(stats.wilcoxon(differences, method="exact").pvalue, rel=1e-9)
        above = stats.wilcoxon(differences - 0.1, method="exact", alternative="greater").pvalue
        below = stats.wilcoxon(differences - 0.1, method="exact", alternative="less").pvalue
        assert found.p_above(0.1) == pytest.approx(above, rel=1e-9)
        assert found.p_below(0.1) == pytest.approx(below, rel=1e-9)


@pytest.mark.parametrize("sizes", [(1, 1), (1, 7), (3, 3), (4, 2), (5, 5), (10, 10), (8, 20), (25, 6)])
def test_unpaired_equals_scipy(sizes):
    for seed in range(5):
        rng = np.random.default_rng([*sizes, seed])
        baseline, contender = rng.normal(0, 1, sizes[0]), rng.normal(0.3, 1, sizes[1])
        found = unpaired(baseline, contender)
        two, above, below = (
            stats.mannwhitneyu(contender, baseline, method="exact", alternative=alternative).pvalue
            for alternative in ("two-sided", "greater", "less")
        )
        assert found.p_different == pytest.approx(two, rel=1e-9)
        assert found.p_above(0) == pytest.approx(above, rel=1e-9)
        assert found.p_below(0) == pytest.approx(below, rel=1e-9)


@pytest.mark.parametrize("n", range(1, 13))
def test_the_signed_rank_distribution_is_that_of_all_signs(n):
    sums = [sum(ranks) for size in range(n + 1) for ranks in itertools.combinations(range(1, n + 1), size)]
    null = signed_rank_null(n)
    for k in range(-1, n * (n + 1) // 2 + 2):
        assert null.cdf(k) == pytest.approx(sum(each <= k for each in sums) / 2**n, rel=1e-9)


def test_the_rank_sum_distribution_is_that_of_all_orders():
    for n, m in itertools.product(range(1, 6), repeat=2):
        statistics = [sum(ranks) - n * (n - 1) // 2 for ranks in itertools.combinations(range(n + m), n)]
        null = rank_sum_null(n, m)
        for k in range(-1, n * m + 2):
            share = sum(each <= k for each in statistics) / math.comb(n + m, n)
            assert null.cdf(k) == pytest.approx(share, rel=1e-9)


@pytest.mark.parametrize(
    ("null", "args", "largest"),
    [(signed_rank_null, (200,), 20100), (rank_sum_null, (100, 100), 10_000), (rank_sum_null, (40, 250), 10_000)],
)
def test_the_normal_branch_is_close_where_it_takes_over(monkeypatch, null, args, largest):
    """The next term of Edgeworth's series, of the excess kurtosis of 40 against 250 (-0.031), is at most 0.0007."""
    exact = null(*args)
    monkeypatch.setattr(shift, "EXACT_PAIRED", 0)
    monkeypatch.setattr(shift, "EXACT_UNPAIRED", 0)
    normal = null.__wrapped__(*args)
    assert (type(exact), type(normal)) == (shift.Exact, shift.Normal)
    assert max(abs(exact.cdf(k) - normal.cdf(k)) for k in range(0, largest, 10)) < 8e-4
    for tail in (0.005, 0.025, 0.05):
        assert abs(exact.rank(tail) - normal.rank(tail)) <= 0.002 * largest
        assert normal.cdf(normal.rank(tail)) <= tail < normal.cdf(normal.rank(tail) + 1)


def test_the_switch_to_the_normal_branch_is_where_it_says():
    assert isinstance(signed_rank_null(200), shift.Exact)
    assert isinstance(signed_rank_null(201), shift.Normal)
    assert isinstance(rank_sum_null(100, 100), shift.Exact)
    assert isinstance(rank_sum_null(101, 100), shift.Normal)


@pytest.mark.parametrize("sizes", [(1, 5000), (5000, 1)])
def test_unequal_sizes_take_little_memory(sizes):
    tracemalloc.start()
    rank_sum_null.__wrapped__(*sizes)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10e6


@pytest.mark.parametrize("alpha", ALPHAS)
def test_the_interval_and_the_p_value_agree(alpha):
    rng = np.random.default_rng(1)
    seen = set()
    for n in (*range(1, 31), 199, 203):
        for distance in (0, 0.3, 1, 3):
            found = paired(rng.normal(distance / math.sqrt(n), 1, n))
            interval = found.interval(1 - alpha)
            outside = interval is not None and not interval[0] <= 0 <= interval[1]
            assert outside == (found.p_different <= alpha), n
            seen.add(outside)
    for n, m in itertools.product((1, 2, 3, 4, 7, 9, 10, 19, 110), repeat=2):
        for distance in (0, 1, 4):
            found = unpaired(rng.normal(0, 1, n), rng.normal(distance / math.sqrt(min(n, m)), 1, m))
            interval = found.interval(1 - alpha)
            outside = interval is not None and not interval[0] <= 0 <= interval[1]
            assert outside == (found.p_different <= alpha), (n, m)
    assert seen == {True, False}


@pytest.mark.parametrize("sizes", [(1, 9), (1, 19), (3, 3), (2, 14), (11, 3)])
def test_a_p_value_that_equals_alpha_counts_however_it_was_rounded(sizes):
    """The smallest p-value of 3 against 3 is 2/20 = 0.1 two-sided, of 1 against 9 it is 2/10."""
    found = unpaired(np.arange(sizes[0]) / 100, 1 + np.arange(sizes[1]))
    alpha = 2 / math.comb(sum(sizes), sizes[0])
    assert found.p_different <= alpha == pytest.approx(found.p_different, rel=1e-9)
    assert found.interval(1 - alpha)[0] > 0
    assert found.p_within(100) <= alpha / 2


@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.1])
def test_p_within_agrees_with_the_interval(alpha):
    rng = np.random.default_rng(2)
    seen = set()
    for n in (1, 3, 4, 5, 6, 8, 10, 17, 30, 203):
        for centre in (0, 0.5, -0.8):
            for found in (
                paired(rng.normal(centre, 1, n)),
                unpaired(rng.normal(0, 1, n), rng.normal(centre, 1, n + 1)),
            ):
                for limit in (0.3, 0.9, 1.5, 5):
                    interval = found.interval(1 - 2 * alpha)
                    inside = interval is not None and -limit < interval[0] <= interval[1] < limit
                    assert inside == (found.p_within(limit) <= alpha), (n, limit)
                    seen.add(inside)
    assert seen == {True, False}


def test_paired_of_a_published_example():
    """Hamilton depression scale before and after tranquilizer (Hollander & Wolfe 1973, p. 29); figures as R tells."""
    before = np.array([1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30])
    after = np.array([0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29])
    found = paired(before - after)
    assert int(np.sum(found.points > 0)) == 40
    assert found.p_different == pytest.approx(0.0390625)
    assert found.p_above(0) == pytest.approx(0.01953125)
    assert found.estimate == pytest.approx(0.46)
    low, high = found.interval(0.95)
    assert (low, high) == (pytest.approx(0.01), pytest.approx(0.786))
    assert 1 - 2 * found.null.cdf(found.null.rank(0.025)) == pytest.approx(0.961, abs=5e-4)


def test_unpaired_of_a_published_example():
    """Permeability of chorioamnion at term and earlier (Hollander & Wolfe 1973, p. 69); figures as R tells."""
    term = np.array([0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46])
    early = np.array([1.15, 0.88, 0.90, 0.74, 1.21])
    found = unpaired(early, term)
    assert int(np.sum(found.points > 0)) == 35
    assert found.p_above(0) == pytest.approx(0.1272, abs=5e-5)
    assert found.p_different == pytest.approx(0.2544, abs=5e-5)
    assert found.estimate == pytest.approx(0.305)
    assert found.interval(0.95) == (pytest.approx(-0.15), pytest.approx(0.76))


@pytest.mark.parametrize("n", range(1, 8))
def test_tied_differences_claim_falsely_no_more_often_than_they_say(n):
    """All ways of being tied or zero, all signs: among equally likely signs, P(p <= x) <= x."""
    signs = np.array(list(itertools.product((-1, 1), repeat=n)))
    for steps in itertools.product((0, 1), repeat=n):
        found = [paired(each * np.cumsum(steps)) for each in signs]
        for p_values in (
            np.array([each.p_above(0) for each in found]),
            np.array([each.p_different for each in found]),
        ):
            shares = np.mean(p_values[:, None] <= np.minimum(1, p_values * (1 + 1e-9)), axis=0)
            assert np.all(shares <= p_values * (1 + 1e-9))


@pytest.mark.parametrize("sizes", [(2, 3), (3, 3), (4, 3)])
def test_tied_values_claim_falsely_no_more_often_than_they_say(sizes):
    n = sum(sizes)
    orders = list(itertools.combinations(range(n), sizes[0]))
    for steps in itertools.product((0, 1), repeat=n - 1):
        pool = np.cumsum([0, *steps])
        found = [unpaired(pool[list(each)], np.delete(pool, each)) for each in orders]
        for p_values in (
            np.array([each.p_above(0) for each in found]),
            np.array([each.p_different for each in found]),
        ):
            shares = np.mean(p_values[:, None] <= p_values * (1 + 1e-9), axis=0)
            assert np.all(shares <= p_values * (1 + 1e-9))


def test_equal_values_show_nothing():
    for found in (paired(np.zeros(10)), unpaired(np.ones(5), np.ones(7))):
        assert (found.estimate, found.interval(0.95), found.p_different) == (0, (0, 0), 1)
        assert found.p_within(0.02) <= 0.05


def test_too_few_values_have_no_interval():
    assert paired(np.arange(1.0, 6)).interval(0.95) is None
    assert paired(np.arange(1.0, 7)).interval(0.95) == (1, 6)
    assert unpaired(np.arange(3.0), np.arange(10.0, 13)).interval(0.95) is None
    assert unpaired(np.arange(4.0), np.arange(10.0, 14)).interval(0.95) == (7, 13)


def test_too_many_pairs_are_refused():
    with pytest.raises(UserError, match="5001 against 4000 values are too many"):
        unpaired(np.zeros(5001), np.zeros(4000))


def test_fewest():
    assert fewest(0.05, is_paired=True) == 6
    assert fewest(0.05, is_paired=False) == 4
    assert fewest(0.1, is_paired=False) == 3
    assert fewest(0.01, is_paired=True) == 8
    for alpha in ALPHAS:
        n = fewest(alpha, is_paired=True)
        assert paired(np.arange(1.0, n + 1)).p_different <= alpha < paired(np.arange(1.0, n)).p_different
        n = fewest(alpha, is_paired=False)
        assert unpaired(np.zeros(n), 1 + np.arange(n)).p_different <= alpha
        assert unpaired(np.zeros(n - 1), 1 + np.arange(n - 1)).p_different > alpha


def told(found, unit=1.0, shifted=0.0):
    """Everything that a shift tells, of values that were scaled by `unit` and then shifted."""
    limits = (-3.0, 0.0, 7.0)
    return (
        (found.estimate - shifted) / unit,
        [None if each is None else tuple((end - shifted) / unit for end in each) for each in intervals(found)],
        [(found.p_above(limit * unit + shifted), found.p_below(limit * unit + shifted)) for limit in limits],
    )


def intervals(found):
    return [found.interval(level) for level in (0.5, 0.9, 0.95)]


@EXAMPLES
@given(values())
def test_swapping_the_sides_of_pairs_mirrors(differences):
    found, swapped = paired(differences), paired(-differences)
    check_mirrored(found, swapped)


@EXAMPLES
@given(values(), values())
def test_swapping_the_sides_mirrors(baseline, contender):
    check_mirrored(unpaired(baseline, contender), unpaired(contender, baseline))


def check_mirrored(found, swapped):
    assert swapped.estimate == -found.estimate
    for here, there in zip(intervals(found), intervals(swapped), strict=True):
        assert here == there is None or (here[0], here[1]) == (-there[1], -there[0])
    assert swapped.p_different == found.p_different
    assert swapped.p_within(5.0) == found.p_within(5.0)
    assert (swapped.p_above(3.0), swapped.p_below(3.0)) == (found.p_below(-3.0), found.p_above(-3.0))


@EXAMPLES
@given(values(), WHOLE)
def test_a_constant_shifts_pairs(differences, constant):
    assert told(paired(differences + constant), shifted=constant) == told(paired(differences))


@EXAMPLES
@given(values(), values(), WHOLE)
def test_a_constant_shifts(baseline, contender, constant):
    usual = told(unpaired(baseline, contender))
    assert told(unpaired(baseline, contender + constant), shifted=constant) == usual
    assert told(unpaired(baseline + constant, contender + constant)) == usual


@EXAMPLES
@given(values(), values(), st.sampled_from([0.25, 2.0, 1024.0]))
def test_another_unit_scales(baseline, contender, unit):
    assert told(paired(unit * baseline), unit=unit) == told(paired(baseline))
    assert told(unpaired(unit * baseline, unit * contender), unit=unit) == told(unpaired(baseline, contender))


@EXAMPLES
@given(values(), values(), st.randoms(use_true_random=False))
def test_the_order_of_values_changes_nothing(baseline, contender, random):
    mixed = np.array(random.sample(list(baseline), len(baseline)))
    assert told(paired(mixed)) == told(paired(baseline))
    assert told(unpaired(mixed, contender)) == told(unpaired(baseline, contender))


@EXAMPLES
@given(values(2))
def test_a_higher_level_holds_the_lower_ones(differences):
    narrow, wide = (paired(differences).interval(level) for level in (0.5, 0.9))
    assert wide is None or wide[0] <= narrow[0] <= paired(differences).estimate <= narrow[1] <= wide[1]
