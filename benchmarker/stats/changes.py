"""Change points of a series that is looked at again with each new point, in noise whose neighbours may be alike.

The values of a series are logarithms, one a point, in order. They are taken to be a level that changes at few points,
plus normal noise. A point's noise has two parts: that between trials, whose variance is known, and that from day to
day, which no trial of one day sees. The latter is autocorrelated by an unknown ρ (AR(1), 0 to 0.9): a slow day is
likely followed by another.

At each look, every split of the points since the last change is tested by generalised least squares: the difference of
the levels on both sides, divided by its standard error, with the ρ that maximises the restricted likelihood under this
split (Harville, Maximum likelihood approaches to variance component estimation, J. Am. Stat. Assoc. 72, 1977). The look
is an alarm if the least p-value of all splits is at most `ALARM`. The points after the change are then a new series.
Level and noise are unknown at first and estimated from the series itself, as in Hawkins, Qiu & Kang, The changepoint
model for statistical process control, J. Qual. Technol. 35 (2003).

An alarm depends on the points up to its look only, so a look at the newest point finds all earlier alarms again: how
often somebody looks changes nothing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

LEAST = 8
"""Fewest points since the last change (or the first point) with which a look can be an alarm."""
BEFORE, AFTER = 4, 2
"""Fewest points on each side of a split."""
ALARM = 1.5e-6
"""Largest p-value that is an alarm.

With it, fewer than 5% of series of 40 points without a change have an alarm at any of their 33 looks if they are
correlated by 0.6, and fewer still if by less: simulated by `benchmarks/history simulate`.
"""
SPIKE = 4.0
"""Standard deviations from the median of five points, itself in the middle, beyond which a point counts as this far."""
LIGHTEST = 0.01
"""Least variance of a point, as a share of the mean, so that no point alone decides."""
CORRELATIONS = np.arange(0.0, 0.95, 0.15)
"""The autocorrelations that are tried."""
PLAUSIBLE = 3.0
"""Difference of the log-likelihood from the best split's up to which a split is in the interval of places."""
LEVEL = 0.95
OF_MEDIAN = np.pi / 2
"""Variance of a median of many normal values, over that of their mean (Kenney & Keeping 1962, section 13.5)."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of level before the point `at`; it is plausible before each of the points from `first` to `last`.

    `shift` is that of the logarithm, with the ends of its 95% interval, `low` and `high`. `seen` is the point whose
    look raised the alarm.
    """

    at: int
    first: int
    last: int
    shift: float
    low: float
    high: float
    seen: int


@dataclass(frozen=True, slots=True)
class Splits:
    """The tests of splits before the points `first`, `first` + 1, ... of several series; arrays are [series, split].

    `likelihood` is the logarithm of the restricted likelihood, but for a constant.
    """

    first: int
    shift: np.ndarray
    error: np.ndarray
    likelihood: np.ndarray
    freedom: int

    @property
    def p_value(self) -> np.ndarray:
        """The two-sided p-values; 1 where the values do not scatter at all and there is no shift."""
        t = np.abs(self.shift) / np.maximum(self.error, 1e-300)
        tails: np.ndarray = 2 * special.stdtr(self.freedom, -t)
        return tails


@dataclass(frozen=True, slots=True)
class Levels:
    """The values of a series, with the variance that each has between trials, pooled over all points; 0 if unknown.

    `deviation` is the standard deviation of a trial, with `freedom` degrees of freedom; None if no point has two.
    """

    values: np.ndarray
    variances: np.ndarray
    deviation: float | None
    freedom: int


def levels_of(trials: Sequence[Sequence[float]]) -> Levels:
    """Return the points of a series from the logarithms of the trials of each: their medians."""
    counts = np.array([len(each) for each in trials])
    freedom = int(np.sum(counts - 1))
    squares = sum(float(np.var(each)) * len(each) for each in trials)
    variance = squares / freedom if freedom else 0.0
    factor = np.where(counts > 2, OF_MEDIAN, 1.0) / counts
    medians = np.array([np.median(each) for each in trials])
    return Levels(medians, variance * factor, math.sqrt(variance) if freedom else None, freedom)


def changes(values: np.ndarray, variances: np.ndarray | None = None) -> tuple[Change, ...]:
    """Return the changes of a series of logarithms; `variances` are those of its points between trials, 0 if unknown.

    Raises ValueError if a value is not finite.
    """
    if not np.all(np.isfinite(values)):
        raise ValueError("a value of the series is not finite")
    known = np.zeros(len(values)) if variances is None else variances
    alarms: list[tuple[int, int]] = []
    start = 0
    for now in range(1, len(values) + 1):
        if now - start < LEAST:
            continue
        splits = splits_of(values[None, start:now], known[start:now])
        least = int(splits.p_value[0].argmin())
        if splits.p_value[0, least] <= ALARM:
            alarms.append((start + splits.first + least, now - 1))
            start += splits.first + _plausible(splits, least)[1]
    places = [0, *(at for at, _ in alarms), len(values)]
    found = []
    for number, (_, seen) in enumerate(alarms, 1):
        change = _located(values, known, places[number - 1], places[number + 1], seen)
        places[number] = change.at
        found.append(change)
    return tuple(found)


def splits_of(values: np.ndarray, variances: np.ndarray) -> Splits:
    """Test every split of several series of equal length, [series, point], each with the ρ that suits it best.

    `variances` are those of the points between trials.
    """
    best, *others = _by_correlation(values, variances)
    for other in others:
        better = other.likelihood > best.likelihood
        best = Splits(
            BEFORE,
            np.where(better, other.shift, best.shift),
            np.where(better, other.error, best.error),
            np.maximum(other.likelihood, best.likelihood),
            best.freedom,
        )
    return best


def _by_correlation(values: np.ndarray, variances: np.ndarray) -> list[Splits]:
    """Test every split with each ρ, after spikes are cut."""
    cut = without_spikes(values)
    cut = cut - np.median(cut, axis=1, keepdims=True)
    scale = _weights(cut, variances)
    ones = np.broadcast_to(1 / scale, cut.shape)
    return [_least_squares(cut / scale, ones, correlation, variances.mean()) for correlation in CORRELATIONS]


def without_spikes(values: np.ndarray) -> np.ndarray:
    """Return series in which points far from their neighbours are nearer: a single slow day is no change."""
    points = values.shape[1]
    middle = np.clip(np.arange(points), 2, points - 3)[:, None] + np.arange(-2, 3)
    medians = np.median(values[:, middle], axis=2)
    limit = SPIKE * _deviation(values)[:, None]
    cut: np.ndarray = np.clip(values, medians - limit, medians + limit)
    return cut


def _deviation(values: np.ndarray) -> np.ndarray:
    """Return the standard deviation of each series from its first differences, which a change of level hardly alters.

    1.4826 times the median absolute deviation is the standard deviation of normal values; a difference has √2 times it.
    """
    steps = np.diff(values, axis=1)
    spread = np.median(np.abs(steps - np.median(steps, axis=1, keepdims=True)), axis=1)
    found: np.ndarray = 1.4826 / np.sqrt(2) * spread
    return found


def _weights(values: np.ndarray, variances: np.ndarray) -> np.ndarray:
    """Return the relative standard deviation of each point: what varies from day to day, and its own trials' part."""
    daily = np.maximum(_deviation(values)[:, None] ** 2 - variances.mean(), 0.0)
    total = daily + variances
    mean = total.mean(axis=1, keepdims=True)
    share = np.divide(total, mean, out=np.ones_like(total), where=mean > 0)
    scale: np.ndarray = np.sqrt(np.maximum(share, LIGHTEST))
    return scale


def _least_squares(values: np.ndarray, ones: np.ndarray, correlation: float, least: float) -> Splits:
    """Test every split with a given ρ; both columns are divided by the deviations, `least` is the least variance.

    The columns of the regression are the level `ones` and, from the split on, the same again. Both are made
    uncorrelated: x_i - ρ x_{i-1}, the first times √(1 - ρ²). The sums over the points after each split are cumulative.
    """
    points = values.shape[1]
    here = slice(BEFORE, points - AFTER + 1)
    level, value = _uncorrelated(ones, correlation), _uncorrelated(values, correlation)
    squares, products = level * level, level * value
    after = _sum_after(squares)
    of_level = squares.sum(axis=1)[:, None]
    of_both = products.sum(axis=1)[:, None]
    of_step = (ones * ones + after)[:, here]
    step_level = (level * ones + after)[:, here]
    step_value = (ones * value + _sum_after(products))[:, here]
    information = of_step - step_level**2 / of_level
    score = step_value - step_level * of_both / of_level
    rest = (value * value).sum(axis=1)[:, None] - of_both**2 / of_level
    rest = np.maximum(rest - score**2 / information, 1e-14 * rest + 1e-300)
    freedom = points - 2
    own = 1 - correlation**2
    variance = np.maximum(rest / freedom, least * own)
    likelihood = (np.log(own) - freedom * np.log(rest) - np.log(of_level * information)) / 2
    return Splits(BEFORE, score / information, np.sqrt(variance / information), likelihood, freedom)


def _uncorrelated(column: np.ndarray, correlation: float) -> np.ndarray:
    first = np.sqrt(1 - correlation**2) * column[:, :1]
    return np.concatenate([first, column[:, 1:] - correlation * column[:, :-1]], axis=1)


def _sum_after(column: np.ndarray) -> np.ndarray:
    """Return for each point the sum over the points after it."""
    total: np.ndarray = column.sum(axis=1, keepdims=True) - np.cumsum(column, axis=1)
    return total


def _plausible(splits: Splits, best: int) -> tuple[int, int]:
    """Return the first and the last split of the first series whose likelihood is close to that of the best."""
    close = np.flatnonzero(splits.likelihood[0] >= splits.likelihood[0, best] - PLAUSIBLE)
    return int(min(close[0], best)), int(max(close[-1], best))


def _located(values: np.ndarray, variances: np.ndarray, start: int, end: int, seen: int) -> Change:
    """Return the change between two neighbouring ones, `start` and `end`, with all the points that are known by now.

    The interval of its size weighs each ρ by its likelihood, because the best one is often too small.
    """
    splits = splits_of(values[None, start:end], variances[start:end])
    best = int(splits.likelihood[0].argmax())
    first, last = _plausible(splits, best)
    several = _by_correlation(values[None, start:end], variances[start:end])
    shifts, errors, likelihoods = (
        np.array([getattr(each, name)[0, best] for each in several]) for name in ("shift", "error", "likelihood")
    )
    weights = np.exp(likelihoods - likelihoods.max())
    weights /= weights.sum()
    shift = float(weights @ shifts)
    error = float(np.sqrt(weights @ (errors**2 + (shifts - shift) ** 2)))
    half = float(special.stdtrit(splits.freedom, (1 + LEVEL) / 2)) * error
    offset = start + splits.first
    return Change(offset + best, offset + first, offset + last, shift, shift - half, shift + half, seen)
