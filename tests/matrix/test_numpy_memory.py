"""In inference, NumPy models keep nothing for a backward pass: memory that is kept is cleared anew in every step."""

import importlib
import tracemalloc
from pathlib import Path

import pytest

from benchmarker import open_bench

OVERHEAD = Path(__file__).parents[2] / "benchmarks/overhead"


def peak_bytes(step):
    step()  # computes the tables that are kept
    tracemalloc.start()
    step()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


@pytest.mark.parametrize(("name", "most"), [("dit", 1.5), ("moe", 1.5), ("llama", 2)])
def test_a_step_takes_about_as_much_memory_as_that_of_a_plain_model(monkeypatch, name, most):
    monkeypatch.syspath_prepend(OVERHEAD)
    plain = importlib.import_module("plain_numpy")
    problem, options = plain.CASES[name]
    bench = open_bench(problem, "numpy", "cpu", **{**options, "precision": "fp32", "n_layer": 2})
    data = bench.data(bench.problem, 1)
    plain_bytes = peak_bytes(lambda: plain.PLAIN[problem](data.weights, data.batches[0], bench.problem))
    assert peak_bytes(bench.build(bench.problem, data).step) < most * plain_bytes
