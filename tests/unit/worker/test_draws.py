"""Inputs are drawn on all cores: the same numbers on any machine, and as normal as those of one generator."""

import numpy as np
import pytest
from scipy import stats

from benchmarker.worker import draws
from benchmarker.worker.draws import Draws


@pytest.fixture(autouse=True)
def short_chunks(monkeypatch):
    monkeypatch.setattr(draws, "CHUNK", 1000)


def generator(seed=1):
    return Draws(np.random.SFC64(seed))


def test_small_arrays_are_those_of_numpy():
    plain, ours = np.random.Generator(np.random.SFC64(1)), generator()
    for size in (None, 3, (10, 100)):
        assert np.array_equal(ours.standard_normal(size, np.float32), plain.standard_normal(size, np.float32))
    assert ours.integers(100) == plain.integers(100)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_number_of_cores_changes_nothing(monkeypatch, dtype):
    found = []
    for cores in (1, 2, 7):
        monkeypatch.setattr(draws, "usable_cores", lambda cores=cores: cores)
        ours = generator()
        found.append([ours.standard_normal((3, 5, 333), dtype) for _ in range(2)])
    first, second = found[0]
    assert (first.shape, first.dtype) == ((3, 5, 333), dtype)
    assert not np.intersect1d(first[0], second[0]).size
    for other in found[1:]:
        assert np.array_equal(other, found[0])
    assert not np.array_equal(generator(2).standard_normal(5000, dtype)[:1000], first.ravel()[:1000])


def test_chunks_are_normal_and_independent():
    values = generator().standard_normal((100, 1000))
    assert stats.kstest(values.ravel(), "norm").pvalue > 0.01
    apart = np.corrcoef(values)[np.triu_indices(100, 1)]
    assert stats.kstest(apart * np.sqrt(1000), "norm").pvalue > 0.01
    assert np.unique(values).size == values.size
