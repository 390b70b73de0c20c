"""Collectives: every operation on 1, 2 and 4 devices, against definitions that stand here."""

import json
import os
import subprocess
import sys

import numpy as np
import psutil
import pytest
from support.records import EXCHANGED

from benchmarker import Data, UserError
from benchmarker.hooks import registry
from benchmarker_plugins.metrics.collective import bus_factor
from benchmarker_problems.collective import Collective, name, trouble

OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv")
PROBLEM = registry.problem("collective")


def run(cli, framework, op, devices, *words):
    options = (f"--framework={framework}", f"--op={op}", f"--devices={devices}", "--power=none", "--json", *words)
    done = cli("run", "--problem=collective", "--device=cpu", *options)
    assert done.returncode == 0, done.stderr
    (record,) = json.loads(done.stdout)
    return record


def test_the_reference_is_what_the_operations_are_defined_to_do():
    """Element by element: device r has x[r, i] at first."""
    n, length = 3, 12
    x = np.random.default_rng(0).integers(-4, 4, (n, length)).astype(float)
    k = length // n
    ranks, places, total = range(n), range(length), [x[0, i] + x[1, i] + x[2, i] for i in range(length)]
    expected = {
        "all_reduce": [total for _ in ranks],
        "all_gather": [[x[i // length, i % length] for i in range(n * length)] for _ in ranks],
        "reduce_scatter": [[total[r * k + i] for i in range(k)] for r in ranks],
        "all_to_all": [[x[i // k, r * k + i % k] for i in places] for r in ranks],
        "broadcast": [[x[0, i] for i in places] for _ in ranks],
        "send_recv": [[x[(r + n - 1) % n, i] for i in places] for r in ranks],
    }
    data = Data({}, ({name(r): x[r] for r in range(n)},))
    for op in OPS:
        (found,) = Collective(op=op).on(n).reference(data, "inference")
        assert [found[name(r)].tolist() for r in ranks] == expected[op]


def test_a_single_wrong_element_is_trouble():
    batch = {name(0): np.arange(4.0), name(1): np.ones(4)}
    right = np.array([1.0, 2.0, 3.0, 4.0])
    assert trouble("all_reduce", batch, 1, right) is None
    right[2] += 1
    assert trouble("all_reduce", batch, 1, right) == "1 of 4 elements of device 1 are wrong"
    assert trouble("all_reduce", batch, 1, right[:2]) == "4 of 4 elements of device 1 are wrong"


def test_the_bus_factors_are_those_of_nccl_tests():
    """Copied from the table at the end of doc/PERFORMANCE.md, at n = 8."""
    table = {"all_reduce": 14 / 8, "all_gather": 7 / 8, "reduce_scatter": 7 / 8, "all_to_all": 7 / 8}
    table |= {"broadcast": 1.0, "send_recv": 1.0}
    assert {op: bus_factor(op, 8) for op in OPS} == table


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("precision", ["fp64", "bf16"])
def test_inputs_have_the_size_and_the_bytes_are_counted(op, precision):
    size, devices, item = 64 * 4, 4, {"fp64": 8, "bf16": 2}[precision]
    params = Collective(op=op, bytes=size).on(devices)
    data = params.data(precision, np.random.Generator(np.random.SFC64(0)), 2)
    read = sum(array.size * item for array in data.batches[0].values())
    (first, second) = params.reference(data, "inference")
    written = sum(array.size * item for array in first.values())
    assert params.cost("inference", precision).bytes == read + written
    assert max(read, written) == devices * size
    assert any((first[key] != second[key]).any() for key in first)


@pytest.mark.parametrize(
    ("devices", "params", "message"),
    [
        (3, {"bytes": 100}, "--bytes=100 is not a multiple of 24, 8 for each device; for example --bytes=96"),
        (1, {"op": "send_recv"}, "--op=send_recv needs several devices; give --devices=2"),
    ],
)
def test_what_cannot_be_divided_is_refused(devices, params, message):
    with pytest.raises(UserError, match=message):
        Collective(**params).on(devices).refuse("inference")


@pytest.mark.parametrize("framework", ["jax", pytest.param("torch", marks=pytest.mark.slow)])
def test_an_exchange_between_two_devices_is_right_and_measured(cli, framework):
    record = run(cli, framework, "all_reduce", 2, "--bytes=65536", "--blocks=3")
    assert record["check"] == EXCHANGED
    assert record["case"]["ranks"] == {"jax": 1, "torch": 2}[framework]
    assert [len(rank["duration_ns"]) for rank in record["ranks"]] == {"jax": [], "torch": [3, 3]}[framework]
    step_s = sum(record["blocks"]["duration_ns"]) / 3e9 / record["blocks"]["steps_per_block"]
    values = {metric: found["value"] for metric, found in record["metrics"].items()}
    assert values["algbw_bytes_per_s"] == pytest.approx(65536 / step_s)
    assert values["busbw_bytes_per_s"] == pytest.approx(65536 / step_s)
    assert values["mbu_measured"] is None


@pytest.mark.slow
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_every_operation_is_right_on_several_devices(cli, framework, op):
    if (framework, op) == ("jax", "broadcast"):
        pytest.skip("refused; see the next test")
    numbers = [2, 4] if op == "send_recv" else [1, 2, 4]
    words = (f"--framework={framework}", f"--op={op}", f"--devices={','.join(map(str, numbers))}")
    options = (*words, "--precision=fp32,bf16", "--bytes=4096", "--blocks=3", "--power=none", "--json")
    done = cli("run", "--problem=collective", "--device=cpu", *options)
    assert done.returncode == 0, done.stderr
    records = json.loads(done.stdout)
    cases = sorted((record["case"]["devices"], record["case"]["precision"]) for record in records)
    assert cases == [(number, precision) for number in numbers for precision in ("bf16", "fp32")]
    for record in records:
        assert (record["status"], record["check"]["error"]) == ("ok", 0.0)
        bus = record["metrics"]["busbw_bytes_per_s"]
        assert (bus["value"] is None) == (record["case"]["devices"] == 1)


def test_what_jax_cannot_do_on_a_cpu_is_refused(cli):
    done = cli("run", "--framework=jax", "--problem=collective", "--device=cpu", "--op=broadcast", "--devices=2")
    assert done.returncode == 2
    assert "collective in jax does not support --op=broadcast with --device=cpu" in done.stderr


@pytest.mark.slow
def test_jax_with_too_few_threads_says_how_many(cli):
    done = cli("run", "--framework=jax", "--problem=collective", "--device=cpu", "--devices=4", "--threads=2")
    assert done.returncode == 1
    assert "jax needs --threads=8 or more for 4 devices of a CPU, not 2" in done.stderr


@pytest.mark.slow
def test_a_killed_rank_of_pytorch_is_named_not_those_that_lost_it(tmp_path):
    words = (
        "--framework=torch",
        "--problem=collective",
        "--device=cpu",
        "--devices=3",
        "--bytes=98304",
        "--power=none",
    )
    command = [sys.executable, "-m", "benchmarker", "run", *words, "--blocks=100000", "--seconds=100", "--json"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=tmp_path, env=os.environ, **pipes) as process:
        try:
            next(line for line in process.stderr if ": timed, block " in line)
            guards = psutil.Process(process.pid).children()
            guards[1].children()[0].kill()
            out, _ = process.communicate(timeout=60)
        finally:
            process.kill()
    (record,) = json.loads(out)
    assert record["error"]["kind"] == "killed"
    assert "the worker was ended by SIGKILL" in record["error"]["message"]
    assert len(record["ranks"][0]["duration_ns"]) == len(record["blocks"]["duration_ns"]) > 0
    assert [guard.is_running() for guard in guards] == [False] * 3
