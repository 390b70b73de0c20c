"""Launches: what a step does, what is measured beside its time, and what a missing kernel looks like."""

import json
import time
from collections.abc import Callable
from statistics import median

import numpy as np
import pytest
from support.records import make_record

from benchmarker import Data, Figure, Workload
from benchmarker.hooks import registry
from benchmarker.worker.bench import open_bench
from benchmarker_plugins.metrics.diagnostics import derive_metrics
from benchmarker_problems.launch.steps import workload

problem = registry.problem("launch")
DATA = Data({}, ({"x": np.array([3.0])}, {"x": np.array([8.0])}))


def steps_of(kernels: int, kernel: Callable = lambda x: x + 1, synchronize: Callable = lambda _: None) -> Workload:
    return workload(kernels, DATA, put=np.copy, kernel=kernel, synchronize=synchronize, to_host=np.copy)


def test_cost_and_reference_by_hand():
    """A kernel reads a number of 4 bytes and writes one."""
    cost = problem(kernels=7).cost("inference", "fp32")
    assert (cost.flops, cost.bytes, cost.samples) == (0, 7 * 8, 7)
    assert problem(kernels=7).cost("inference", "fp64").bytes == 7 * 16
    assert [each["x"].tolist() for each in problem(kernels=7).reference(DATA, "inference")] == [[10.0], [15.0]]
    assert problem(kernels=7).numerics("inference", "fp32").bound == 0


@pytest.mark.parametrize("precision", ["fp64", "fp32"])
@pytest.mark.parametrize("framework", ["jax", "torch", "numpy"])
def test_a_step_launches_every_kernel_on_the_next_input(framework, precision):
    bench = open_bench("launch", framework, "cpu", precision=precision, kernels=5)
    data = bench.data(bench.problem, 3)
    built = bench.build(bench.problem, data)
    for batch in [*data.batches, data.batches[0]]:
        result = built.step()
        np.testing.assert_array_equal(built.outputs(result)["x"], batch["x"] + 5)
        assert built.verify(result) is None


def test_a_kernel_that_did_not_run_is_a_wrong_result():
    calls = []

    def skips_the_third(x):
        calls.append(x)
        return x if len(calls) == 3 else x + 1

    built = steps_of(4, skips_the_third)
    assert built.verify(built.step()) == "4 additions of 1 give [6.0], which is none of [7.0, 12.0]"


def test_a_step_waits_and_the_time_to_enqueue_does_not_include_the_wait():
    pending = []

    def kernel(x):
        assert not pending, "a round began before the last one was waited for"
        time.sleep(0.0005)
        return x + 1

    def synchronize(x):
        pending.append(x)
        time.sleep(0.02)
        pending.clear()

    built = steps_of(2, kernel, synchronize)
    start = time.perf_counter()
    built.step()
    assert time.perf_counter() - start >= 0.021
    (figure,) = built.figures()
    assert (figure.name, figure.unit, figure.better) == ("enqueue_s", "s", "lower")
    assert 0.001 <= median(figure.values) < 0.02
    assert 1 < len(figure.values) <= 100


def test_the_metric_is_the_median_and_null_without_a_figure():
    case = {"problem": "launch", "params": {"kernels": 1}}
    found = derive_metrics(make_record(case=case, figures=[Figure("enqueue_s", "s", "lower", [5e-6, 1e-6, 2e-6])]))
    assert (found["enqueue_s"].value, found["enqueue_s"].reason) == (2e-6, None)
    found = derive_metrics(make_record(case=case))
    assert (found["enqueue_s"].value, found["enqueue_s"].reason) == (None, "the trial did not get so far")
    assert derive_metrics(make_record()) == {}


def test_a_run_has_the_time_to_enqueue_and_counts_kernels_as_samples(cli):
    done = cli("run", "--framework=numpy", "--problem=launch", "--kernels=40", "--blocks=3", "--power=none", "--json")
    assert done.returncode == 0, done.stderr
    (record,) = json.loads(done.stdout)
    metrics, blocks = record["metrics"], record["blocks"]
    step_s = sum(blocks["duration_ns"]) / len(blocks["duration_ns"]) / blocks["steps_per_block"] / 1e9
    assert metrics["samples_per_s"]["value"] == pytest.approx(40 / step_s)
    (figure,) = record["figures"]
    assert metrics["enqueue_s"]["value"] == pytest.approx(median(figure["values"]))


def test_too_many_kernels_are_refused(cli):
    done = cli("run", "--framework=numpy", "--problem=launch", "--kernels=1048577")
    assert done.returncode == 2
    assert "1048576" in done.stderr
