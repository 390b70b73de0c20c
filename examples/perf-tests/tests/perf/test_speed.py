"""How fast the functions are: `pytest --benchmarker=run tests/perf`."""

import numpy as np
import pytest
from smoothing import moving_mean, moving_median, runs


@pytest.fixture
def x():
    return np.random.default_rng(0).standard_normal(20_000)


@pytest.mark.parametrize("width", [64, 1024])
def test_moving_mean(measure, x, width):
    means = measure(moving_mean, x, width)
    assert means.shape == (len(x) - width + 1,)


@pytest.mark.benchmarker(seconds=2)
def test_moving_median(measure, x):
    assert measure(moving_median, x, 8)[0] == np.median(x[:8])


def test_runs(measure):
    assert measure(runs, "aab" * 1000)[-1] == ("b", 1)
