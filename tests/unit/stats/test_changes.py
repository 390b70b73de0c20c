"""Change points: the algebra beside a plain regression, what raises an alarm, and how often without a change."""

import numpy as np
import pytest
from scipy import special, stats

from benchmarker.stats import changes as module
from benchmarker.stats.changes import ALARM, BEFORE, CORRELATIONS, LEAST, changes, splits_of


def noise(rng, series, points, correlation=0.0):
    made = rng.standard_normal((series, points))
    for point in range(1, points):
        made[:, point] = correlation * made[:, point - 1] + np.sqrt(1 - correlation**2) * made[:, point]
    return made


def stepped(deviation=0.01, shift=0.1, at=20, points=40, seed=1):
    values = deviation * noise(np.random.default_rng(seed), 1, points)[0]
    values[at:] += shift
    return values


def restricted_likelihood(values, columns, covariance):
    """Harville (1977), with the variance profiled out, and the shift with its error, by plain linear algebra."""
    inverse = np.linalg.inv(covariance)
    information = columns.T @ inverse @ columns
    estimate = np.linalg.solve(information, columns.T @ inverse @ values)
    rest = values - columns @ estimate
    squares = rest @ inverse @ rest
    freedom = len(values) - columns.shape[1]
    likelihood = -(np.linalg.slogdet(covariance)[1] + np.linalg.slogdet(information)[1]) / 2
    likelihood -= freedom / 2 * np.log(squares)
    return likelihood, estimate[1], np.sqrt(squares / freedom * np.linalg.inv(information)[1, 1])


@pytest.mark.parametrize("variances", [np.zeros(15), np.linspace(0.1, 0.5, 15)], ids=["even", "uneven"])
def test_each_split_is_a_regression_by_generalised_least_squares(variances):
    values = noise(np.random.default_rng(3), 1, 15, 0.5)
    cut = module.without_spikes(values)
    scale = module._weights(cut, variances)[0]
    found = splits_of(values, variances)
    distance = np.abs(np.subtract.outer(np.arange(15), np.arange(15)))
    for split in range(found.shift.shape[1]):
        step = (np.arange(15) >= BEFORE + split).astype(float)
        columns = np.column_stack([np.ones(15), step])
        of_each = [
            restricted_likelihood(cut[0], columns, scale[:, None] * correlation**distance * scale)
            for correlation in CORRELATIONS
        ]
        likelihood, shift, error = max(of_each)
        assert found.shift[0, split] == pytest.approx(shift, rel=1e-9)
        assert found.error[0, split] >= error * (1 - 1e-9)  # not below what trials alone would give
        if not variances.any():
            assert found.error[0, split] == pytest.approx(error, rel=1e-9)
            assert found.p_value[0, split] == pytest.approx(2 * stats.t(13).sf(abs(shift / error)), rel=1e-9)
        differences = found.likelihood[0, split] - found.likelihood[0, 0]
        if split == 0:
            first = likelihood
        assert differences == pytest.approx(likelihood - first, abs=1e-9)


def test_a_clear_change_has_its_place_and_its_size():
    (found,) = changes(stepped())
    assert found.first <= found.at <= found.last
    assert (found.at, found.seen) == (20, 22)
    assert found.low < 0.1 < found.high
    assert found.high - found.low == pytest.approx(2 * special.stdtrit(38, 0.975) * 0.01 * np.sqrt(1 / 10), rel=0.4)


def test_what_was_found_is_found_again_with_each_new_point():
    values = stepped()
    assert changes(values[:22]) == ()
    assert [changes(values[:points])[0].at for points in range(23, 41)] == [20] * 18


def test_a_change_back_is_another_change():
    values = stepped()
    values[30:] -= 0.1
    assert [(each.at, round(each.shift, 1)) for each in changes(values)] == [(20, 0.1), (30, -0.1)]


def test_neither_scale_nor_level_nor_sign_matter():
    values = stepped(shift=0.04)
    (one,), (other,) = changes(values), changes(7 - 100 * values)
    assert (one.at, one.first, one.last, one.seen) == (other.at, other.first, other.last, other.seen)
    assert other.shift == pytest.approx(-100 * one.shift)
    assert (other.low, other.high) == (pytest.approx(-100 * one.high), pytest.approx(-100 * one.low))


def test_single_slow_days_are_no_change():
    values = stepped(shift=0.0)
    values[[10, 17, 25, 39]] += 0.5
    assert changes(values) == ()


def test_noise_is_not_less_than_that_between_trials():
    values = stepped(deviation=0.001)
    assert len(changes(values, np.full(40, 0.001**2))) == 1
    assert changes(values, np.full(40, 0.05**2)) == ()


@pytest.mark.parametrize("points", range(LEAST))
def test_a_short_series_has_no_change(points):
    assert changes(np.arange(points, dtype=float)) == ()


def test_equal_values_have_no_change_and_an_exact_step_has_one():
    assert changes(np.zeros(20)) == ()
    (found,) = changes(np.repeat([0.0, 1.0], 10))
    assert (found.at, found.first, found.last, found.shift) == (10, 10, 10, pytest.approx(1.0))


def test_a_value_that_is_not_finite_is_refused():
    with pytest.raises(ValueError, match="not finite"):
        changes(np.array([0.0] * 9 + [np.nan]))


def test_the_first_alarm_is_at_the_first_look_with_a_small_p_value():
    for seed in range(5):
        values = stepped(shift=0.03, seed=seed)
        looks = [float(splits_of(values[None, :points], np.zeros(points)).p_value.min()) for points in range(LEAST, 41)]
        first = next(at for at, p_value in enumerate(looks) if p_value <= ALARM)
        assert changes(values)[0].seen == first + LEAST - 1


@pytest.mark.parametrize("correlation", [0.0, 0.6])
def test_fewer_than_one_in_twenty_series_without_a_change_has_an_alarm(correlation):
    """At any of all looks; 2,000 series, three standard errors above 5%."""
    series = noise(np.random.default_rng(7), 2000, 40, correlation)
    least = [splits_of(series[:, :points], np.zeros(points)).p_value.min(axis=1) for points in range(LEAST, 41)]
    assert np.mean(np.min(least, axis=0) <= ALARM) < 0.065


def test_a_point_is_the_median_of_its_trials_with_their_pooled_variance():
    found = module.levels_of([[0.0, 0.2, 0.1], [1.0], [3.0, 3.4]])
    assert found.values.tolist() == pytest.approx([0.1, 1.0, 3.2])
    pooled = (0.02 + 0.08) / 3  # sums of squares around the mean of each, over 2 + 0 + 1 degrees of freedom
    assert (found.deviation, found.freedom) == (pytest.approx(np.sqrt(pooled)), 3)
    assert found.variances.tolist() == pytest.approx([pooled / 3 * np.pi / 2, pooled, pooled / 2])
    alone = module.levels_of([[0.0], [1.0]])
    assert (alone.deviation, alone.freedom, alone.variances.tolist()) == (None, 0, [0.0, 0.0])
