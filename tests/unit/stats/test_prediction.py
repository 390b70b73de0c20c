"""Prediction bounds of a new median: by hand, and how often they hold."""

import math

import numpy as np
import pytest
from scipy import stats

from benchmarker.stats.quantile_interval import median_allowance

DRAWS = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "heavy tails": lambda rng, shape: rng.standard_t(3, shape),
    "one in ten trials slow": lambda rng, shape: np.where(
        rng.random(shape) < 0.1, -5 * np.abs(rng.standard_normal(shape)), rng.standard_normal(shape)
    ),
}


def covered(draw, n, alpha, sets, seed):
    """The share of sets in which the median of n new values is above the bound from n others."""
    rng = np.random.default_rng(seed)
    old, new = DRAWS[draw](rng, (sets, n)), DRAWS[draw](rng, (sets, n))
    bounds = [np.median(values) - median_allowance(values, alpha) for values in old]
    return float(np.mean(np.median(new, axis=1) >= bounds))


def test_by_hand():
    """Of -1, 0, 1 the deviation is 1, and t at 95% with 2 degrees of freedom is 2.920 (any table)."""
    assert median_allowance([-1.0, 0.0, 1.0], 0.05) == pytest.approx(2.920 * math.sqrt(math.pi / 2 * 2 / 3), rel=1e-3)
    assert median_allowance([2.0, 2.0], 0.05) == 0
    with pytest.raises(ValueError, match="a single value shows no scatter"):
        median_allowance([1.0], 0.05)


@pytest.mark.parametrize("n", [2, 3, 4, 6, 9, 25])
def test_the_median_of_few_normal_values_varies_less_than_pi_halves_of_their_mean(n):
    """The exact variance of the median, by integration over its density; for even n, over two order statistics."""
    grid = np.linspace(-6, 6, 1201)
    cdf, pdf = stats.norm.cdf(grid), stats.norm.pdf(grid)
    step = grid[1] - grid[0]
    if n % 2:
        k = n // 2
        density = math.factorial(n) / math.factorial(k) ** 2 * (cdf * (1 - cdf)) ** k * pdf
        variance = float(np.sum(grid**2 * density) * step)
    else:
        k = n // 2 - 1
        x, y = np.meshgrid(grid, grid, indexing="ij")
        weight = np.where(y > x, 1.0, np.where(y == x, 0.5, 0.0))
        density = math.factorial(n) / math.factorial(k) ** 2 * np.outer(cdf**k * pdf, (1 - cdf) ** k * pdf) * weight
        variance = float(np.sum(((x + y) / 2) ** 2 * density) * step**2)
    assert n * variance * 1.001 >= 1
    assert n * variance < math.pi / 2


def test_the_bound_holds_as_often_as_it_says():
    assert 0.95 <= covered("normal", 6, 0.05, 4000, seed=1) <= 0.98


@pytest.mark.slow
@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("n", [3, 10])
@pytest.mark.parametrize("alpha", [0.05, 0.05 / 12])
def test_the_bound_holds_for_other_scatter_and_for_many_cases(draw, n, alpha):
    assert covered(draw, n, alpha, 5000, seed=n) >= 1 - alpha - 3 * math.sqrt(alpha / 5000)
