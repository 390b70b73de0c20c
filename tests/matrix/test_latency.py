"""Dependent loads: one cycle through all lines, the end of every step, and the time of a load."""

import json

import numpy as np
import pytest
from support.records import make_record

from benchmarker import UserError
from benchmarker.hooks import registry
from benchmarker.records.record import Blocks, Failure
from benchmarker.worker.bench import open_bench
from benchmarker_plugins.metrics.diagnostics import derive_metrics

problem = registry.problem("latency")


def walked(memory, line, loads):
    """The line after so many loads, one by one."""
    for _ in range(loads):
        line = int(memory[line, 0]) // 16
    return line


@pytest.mark.parametrize("lines", [1, 2, 37, 64])
def test_the_lines_form_one_cycle(lines):
    memory = problem(bytes=64 * lines).data("fp32", np.random.default_rng(0), 1).weights["memory"]
    assert (memory.nbytes, memory.dtype) == (64 * lines, np.uint32)
    seen = [walked(memory, 0, loads) for loads in range(lines)]
    assert sorted(seen) == list(range(lines))
    assert walked(memory, 0, lines) == 0
    assert [(int(memory[line, 1]) - int(memory[0, 1])) % lines for line in seen] == list(range(lines))


def test_the_order_is_not_that_of_memory():
    """Neither the same distance again nor the next line, as a prefetcher would find."""
    memory = problem(bytes=64 * 4096).data("fp32", np.random.default_rng(0), 1).weights["memory"]
    distances = memory[:, 0].astype(int) // 16 - np.arange(4096)
    _, counts = np.unique(distances, return_counts=True)
    assert counts.max() < 20


@pytest.mark.parametrize("loads", [1, 36, 37, 100])
def test_the_reference_ends_where_a_walk_does_and_the_next_batch_begins_there(loads):
    made = problem(bytes=64 * 37, loads=loads)
    data = made.data("fp32", np.random.default_rng(0), 3)
    ends = [int(outputs["line"][0]) for outputs in made.reference(data, "inference")]
    assert ends == [walked(data.weights["memory"], int(batch["line"]), loads) for batch in data.batches]
    assert ends[:-1] == [int(batch["line"]) for batch in data.batches[1:]]


def test_cost_by_hand():
    """More loads than lines load each line again, from where the first load of it left it."""
    cost = problem(bytes=6400, loads=30).cost("inference", "fp32")
    assert (cost.flops, cost.bytes, cost.samples) == (0, 30 * 64, 30)
    assert problem(bytes=6400, loads=1000).cost("inference", "fp32").bytes == 6400


def test_a_part_of_a_line_is_refused():
    with pytest.raises(
        UserError, match="--bytes=100 is not a multiple of 64, the bytes of a line; for example --bytes=64"
    ):
        problem(bytes=100).refuse("inference")


@pytest.mark.parametrize("lines", [1, 37, 64])
def test_steps_go_on_where_the_last_one_ended(lines):
    bench = open_bench("latency", "jax", "cpu", bytes=64 * lines, loads=29)
    data = bench.data(bench.problem, 2)
    workload = bench.build(bench.problem, data)
    at = int(data.batches[0]["line"])
    for _ in range(5):
        result, at = workload.step(), walked(data.weights["memory"], at, 29)
        assert workload.outputs(result)["line"].tolist() == [at]
        assert workload.verify(result) is None
    assert lines == 1 or "the loads end at line" in workload.verify(np.uint32(16 * ((at + 1) % lines)))


def test_the_time_of_a_load_is_the_median_step_over_its_loads():
    case = {"problem": "latency", "params": {"loads": 50}}
    record = make_record(case=case, blocks=Blocks(4, [1000, 6000, 2000], "blocks"))
    assert derive_metrics(record)["load_latency_s"].value == pytest.approx(2e-6 / (4 * 50))
    failure = Failure(kind="exception", message="", stage="build")
    reasons = {**record.reasons, "blocks": "the trial ended before it was known"}
    failed = make_record(case=case, status="failed", error=failure, blocks=None, reasons=reasons)
    found = derive_metrics(failed)["load_latency_s"]
    assert (found.value, found.reason) == (None, "no timed block")


def test_a_run_has_the_time_of_a_load(cli):
    done = cli("run", "--problem=latency", "--framework=jax", "--bytes=16K", "--loads=1000", "--blocks=3", "--json")
    assert done.returncode == 0, done.stderr
    (record,) = json.loads(done.stdout)
    assert 1e-10 < record["metrics"]["load_latency_s"]["value"] < 1e-5
    assert record["check"]["error"] == 0
