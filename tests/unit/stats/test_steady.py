import numpy as np
import pytest
from scipy import signal, stats

from benchmarker.stats.steady import CERTAINTY, CHANGE, LAST, MIN_BLOCKS, Change, change, trend


def noise(seed, n=100, deviation=0.01):
    return np.exp(deviation * np.random.default_rng(seed).standard_normal(n))


def found_in(series):
    return np.mean([change(each) is not None for each in series])


@pytest.mark.parametrize("deviation", [0.01, 0.1, 0.5])
def test_white_noise_stands_still(deviation):
    draws = np.random.default_rng(1).standard_normal((1000, 100))
    assert found_in(np.exp(deviation * draws)) <= 0.01


@pytest.mark.parametrize("blocks", [22, 100])
def test_heavy_tails_stand_still(blocks):
    """The two searches have p-values of `CERTAINTY`, so 12 or more of 2000 have a probability of 0.1%."""
    draws = np.random.default_rng(1).standard_t(2, (2000, blocks))
    assert stats.binom.sf(11, len(draws), 2 * CERTAINTY) <= 1e-3
    assert found_in(np.exp(0.5 * draws)) * len(draws) < 12


def test_autocorrelated_noise_mostly_stands_still():
    """With AR(1) of 0.5, sums vary 3 times as much: 2 exp(-x) of `CERTAINTY` is in truth 2 exp(-x / 3), or 16%.

    Medians of 50 blocks that vary by 20% differ by more than 2% in most series, so that share is no help here.
    Measured: 8 to 10%.
    """
    rho, deviation = 0.5, 0.2
    draws = np.random.default_rng(2).standard_normal((1000, 100))
    draws[:, 1:] *= np.sqrt(1 - rho**2)
    series = np.exp(deviation * signal.lfilter([1], [1, -rho], draws, axis=1))
    inflation = (1 + rho) / (1 - rho)
    assert found_in(series) <= 2 * (CERTAINTY / 2) ** (1 / inflation) == pytest.approx(0.159, abs=1e-3)


@pytest.mark.parametrize("seed", range(10))
def test_a_warm_up_is_found(seed):
    durations = noise(seed)
    durations[:15] *= 1.1
    found = change(durations)
    assert abs(found.after - 15) <= 3
    assert found.warmup
    assert found.share == pytest.approx(1 / 1.1 - 1, abs=0.01)


@pytest.mark.parametrize("first", [3, 5, 8, 12])
def test_a_short_warm_up_is_found(first):
    durations = noise(3)
    durations[:first] *= 1.15
    found = change(durations)
    assert found.warmup
    assert abs(found.after - first) <= 4
    assert found.share < -0.05


@pytest.mark.parametrize("ratio", [1.15, 1 / 1.15])
@pytest.mark.parametrize(("blocks", "last"), [(50, 5), (100, 5), (100, 7), (100, 10), (300, 15), (1000, 30)])
def test_another_level_of_the_last_blocks_is_found(blocks, last, ratio):
    durations = noise(3, blocks)
    durations[-last:] *= ratio
    found = change(durations)
    assert not found.warmup
    assert min(last, max(LAST)) - 4 <= blocks - found.after <= last + 1
    assert (found.share > 0) == (ratio > 1)


def test_faster_first_blocks_and_four_slow_last_ones_are_not_told():
    durations = noise(3)
    durations[:5] /= 1.15
    assert change(durations) is None
    durations = noise(3)
    durations[-4:] *= 1.15
    assert change(durations) is None


def test_a_small_change_before_it_hides_no_change_of_the_last_blocks():
    durations = noise(3, deviation=0.002)
    durations[50:] *= 1.01
    assert change(durations) is None
    durations[-8:] *= 1.1
    assert (change(durations).after, change(durations).share > 0.05) == (92, True)


def test_two_slow_blocks_and_outliers_are_no_warm_up():
    durations = noise(4)
    durations[[0, 1, 40, 41, 77]] *= 3
    assert change(durations) is None


@pytest.mark.parametrize("seed", range(10))
def test_a_rise_is_found_and_is_no_warm_up(seed):
    durations = noise(seed)
    durations[50:] *= 1.05
    found = change(durations)
    assert abs(found.after - 50) <= 3
    assert not found.warmup
    assert found.share == pytest.approx(0.05, abs=0.01)


def test_a_fall_late_is_no_warm_up():
    durations = noise(1)
    durations[70:] /= 1.1
    found = change(durations)
    assert (found.warmup, abs(found.after - 70) <= 3, found.share < 0) == (False, True, True)


def test_an_early_rise_is_no_warm_up():
    durations = noise(1)
    durations[30:] *= 1.1
    assert not change(durations).warmup


def test_a_trend_is_found_in_the_middle():
    """Of a straight line from 1 to 1.2 the medians of the halves are 1.05 and 1.15."""
    found = change(np.linspace(1, 1.2, 100))
    assert found == Change(50, pytest.approx(1.15 / 1.05 - 1, rel=0.02), warmup=False)


def test_what_is_too_small_is_not_told():
    for size, told in ((0.9, False), (1.1, True)):
        durations = np.ones(100)
        durations[60:] += size * CHANGE
        assert (change(durations) is not None) == told


def test_a_short_series_is_not_judged():
    """Half of 22 blocks against the other half: K = 121 and 2 exp(-6 K² / (22³ + 22²)) = 0.00075; of 21, 0.0011."""
    assert MIN_BLOCKS == 22
    assert change(np.repeat([2.0, 1.0], 11)) == Change(11, -0.5, warmup=True)
    assert change(np.repeat([2.0, 1.0], [11, 10])) is None
    assert change(np.ones(3)) is None


def test_the_p_value_is_that_of_pettitt_and_the_point_the_best_split_of_ranks():
    """K = max over t of |sum of sgn(x_i - x_j), i <= t < j|, and p ≈ 2 exp(-6 K² / (n³ + n²))."""
    rng = np.random.default_rng(4)
    told = 0
    for n in (22, 40, 75):
        for deviation in (0.02, 0.1, 0.3):
            for _ in range(10):
                durations = np.round(np.linspace(1.1, 1, n) * np.exp(deviation * rng.standard_normal(n)), 2)
                signs = np.sign(durations[:, None] - durations[None, :])
                largest = max(abs(signs[:t, t:].sum()) for t in range(1, n))
                p_value = 2 * np.exp(-6 * largest**2 / (n**3 + n**2))
                ranks = stats.rankdata(durations)
                left = [t * ranks[:t].var() + (n - t) * ranks[t:].var() for t in range(1, n)]
                after = 1 + int(np.argmin(left))
                share = np.median(durations[after:]) / np.median(durations[:after]) - 1
                found = change(durations)
                assert (found is not None) == (p_value <= 1e-3 and abs(share) >= 0.02)
                if found:
                    told += 1
                    assert (found.after, found.share) == (after, pytest.approx(share))
    assert 20 <= told <= 70


@pytest.mark.parametrize("n", [3, 10, 50])
def test_the_p_value_of_a_trend_is_that_of_scipy(n):
    for seed in range(20):
        values = np.round(np.random.default_rng(seed).standard_normal(n) + 0.05 * np.arange(n), 1)  # with ties
        if np.ptp(values):
            assert trend(values) == pytest.approx(stats.spearmanr(np.arange(n), values).pvalue, abs=1e-12)


def test_equal_values_have_no_trend_and_ordered_ones_surely_have():
    assert trend(np.ones(5)) == 1.0
    assert trend(-np.arange(5.0)) == 0.0
