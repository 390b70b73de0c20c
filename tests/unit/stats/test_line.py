"""The line through times over sizes, against other ways to find it."""

import numpy as np
import pytest

from benchmarker.stats.line import line

SIZES = np.array([4096.0, 65536.0, 2**20, 2**26, 2**30])


def test_a_line_is_found_exactly():
    """A transfer that takes 5 µs in any case, and 20 GB/s."""
    found = line(SIZES, np.tile(5e-6 + SIZES / 20e9, (6, 1)))
    for estimate, exact in ((found.start, 5e-6), (found.rate, 20e9)):
        assert [estimate.value, estimate.low, estimate.high] == pytest.approx([exact] * 3, rel=1e-9)
    assert found.residual < 1e-9


def test_it_is_the_weighted_line_of_polyfit():
    rng = np.random.default_rng(0)
    times = (5e-6 + SIZES / 20e9) * rng.uniform(0.9, 1.1, len(SIZES))
    slope, start = np.polyfit(SIZES, times, 1, w=1 / times)
    found = line(SIZES, times[None])
    assert (found.start.value, 1 / found.rate.value) == pytest.approx((start, slope), rel=1e-6)
    assert (found.start.low, found.rate.high) == (None, None)
    assert found.residual == pytest.approx(np.abs(times / (start + SIZES * slope) - 1).max(), rel=1e-6)


def test_medians_are_those_of_the_lines_of_rounds():
    starts, rates = [1e-6, 3e-6, 2e-6], [1e9, 2e9, 4e9]
    found = line(SIZES, np.array([start + SIZES / rate for start, rate in zip(starts, rates, strict=True)]))
    assert (found.start.value, found.rate.value) == pytest.approx((2e-6, 2e9), rel=1e-9)


def test_neither_part_is_negative():
    faster_than_a_line = np.array([1.0, 20.0, 300.0])
    found = line(np.array([1.0, 10.0, 100.0]), faster_than_a_line[None])
    assert found.start.value == 0
    assert found.residual > 0.2
    assert line(np.array([1.0, 10.0, 100.0]), np.array([[3.0, 2.0, 1.0]])) is None


def test_the_end_of_a_rate_without_growth_is_open():
    times = np.array([1e-6 + SIZES / 1e9 * grows for grows in (1, 1, 1, 1, 1, 0)])
    found = line(SIZES, times)
    assert found.rate.high is None
    assert found.rate.low == pytest.approx(1e9, rel=1e-9)


def test_intervals_contain_what_is_true():
    """Of lines that vary by 20% from round to round; with six rounds, the exact coverage is 1 - 2/64 = 96.9%."""
    rng, sizes, inside = np.random.default_rng(1), np.array([1.0, 30.0, 1000.0]), 0
    for _ in range(400):
        start, each = 2.0 * np.exp(rng.normal(0, 0.2, 6)), 0.1 * np.exp(rng.normal(0, 0.2, 6))
        found = line(sizes, start[:, None] + each[:, None] * sizes)
        inside += (found.start.low <= 2.0 <= found.start.high) + (found.rate.low <= 10.0 <= found.rate.high)
    assert inside / 800 == pytest.approx(1 - 2 / 64, abs=0.02)
