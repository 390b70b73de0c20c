"""What the functions return."""

import numpy as np
from smoothing import moving_mean, moving_median, runs


def test_means_and_medians_of_three():
    x = np.array([1.0, 2.0, 6.0, 4.0])
    assert moving_mean(x, 3).tolist() == [3.0, 4.0]
    assert moving_median(x, 3).tolist() == [2.0, 4.0]


def test_runs():
    assert runs("aab") == [("a", 2), ("b", 1)]
