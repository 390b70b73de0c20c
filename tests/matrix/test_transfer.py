"""Transfers: what arrives, that it is really copied, and what a copy on a CPU is called."""

import json

import jax
import numpy as np
import pytest
import torch
from support.records import make_record

from benchmarker import Data, UserError
from benchmarker.hooks import registry
from benchmarker.records.record import CostPart, Failure
from benchmarker.worker.bench import open_bench
from benchmarker_plugins.metrics.diagnostics import derive_metrics
from benchmarker_problems.transfer.jax import unaligned
from benchmarker_problems.transfer.steps import workload

problem = registry.problem("transfer")
NOT_TIMED = {
    "status": "failed",
    "error": Failure(kind="exception", message="", stage="build"),
    "blocks": None,
    "reasons": {**make_record().reasons, "blocks": "the trial ended before it was known"},
}
DIRECTIONS = ("to_device", "from_device", "round_trip")


def built(framework, direction, memory="pageable", size=400):
    bench = open_bench("transfer", framework, "cpu", bytes=size, direction=direction, memory=memory)
    data = bench.data(bench.problem, 3)
    return bench.build(bench.problem, data), data


@pytest.mark.parametrize(("direction", "moved"), [("to_device", 400), ("from_device", 400), ("round_trip", 800)])
def test_what_is_read_and_written_is_counted(direction, moved):
    cost = problem(bytes=400, direction=direction).cost("inference", "fp32")
    assert (cost.flops, cost.bytes, cost.samples) == (0, 2 * moved, 1)


def test_batches_have_the_size_and_differ():
    data = problem(bytes=400).data("fp32", np.random.default_rng(0), 3)
    assert [batch["x"].nbytes for batch in data.batches] == [400] * 3
    assert len({batch["x"].tobytes() for batch in data.batches}) == 3


def test_a_part_of_a_number_is_refused():
    with pytest.raises(
        UserError, match="--bytes=13 is not a multiple of 4, the bytes of a number; for example --bytes=12"
    ):
        problem(bytes=13).refuse("inference")


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_each_batch_arrives_in_other_memory(framework, direction):
    workload, data = built(framework, direction)
    for batch in [*data.batches, data.batches[0]]:
        result = workload.step()
        np.testing.assert_array_equal(workload.outputs(result)["x"], batch["x"])
        assert workload.verify(result) is None


def address(x):
    if isinstance(x, jax.Array):
        return x.unsafe_buffer_pointer()
    return x.data_ptr() if isinstance(x, torch.Tensor) else x.ctypes.data


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_what_arrives_is_a_copy_also_on_a_cpu(framework, direction, monkeypatch):
    """JAX would use an aligned array in place, and NumPy the memory of an array of JAX."""
    moves = []
    module = __import__(f"benchmarker_problems.transfer.{framework}", fromlist=["workload"])
    monkeypatch.setattr(
        module,
        "workload",
        lambda data, sources, move, **rest: moves.append((sources, move)) or workload(data, sources, move=move, **rest),
    )
    built(framework, direction, size=2**20)
    ((sources, move),) = moves
    for source in sources:
        results = [move(source), move(source)]
        assert all(address(result) != address(source) for result in results)


@pytest.mark.parametrize("shift", range(0, 64, 4))
def test_an_array_is_put_where_jax_must_copy_it(shift):
    values = np.arange(50, dtype=np.float32)[shift // 4 :]
    copy = unaligned(values)
    assert copy.ctypes.data % 64 == 16
    assert copy.tolist() == values.tolist()


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_jax_copies_between_its_kinds_of_memory(direction):
    """The CPU of JAX has memory that it calls pinned: what runs on a GPU is right, if not fast, here."""
    workload, data = built("jax", direction, "pinned")
    for batch in data.batches:
        result = workload.step()
        assert result.sharding.memory_kind == ("device" if direction == "to_device" else "pinned_host")
        np.testing.assert_array_equal(workload.outputs(result)["x"], batch["x"])


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_pytorch_does_not_wait_for_copies_from_and_to_pinned_memory_one_by_one(direction, monkeypatch):
    """There is none without a GPU: the host's tensors are marked instead."""
    pinned, copies = {}, []  # the tensors stay, so that no other one gets their addresses
    copy_ = torch.Tensor.copy_

    def pin_memory(tensor):
        pinned[tensor.data_ptr()] = tensor
        return tensor

    def copied(target, source, non_blocking=False):
        copies.append((source.data_ptr() in pinned, target.data_ptr() in pinned, non_blocking))
        return copy_(target, source)

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin_memory)
    monkeypatch.setattr(torch.Tensor, "copy_", copied)
    workload, _ = built("torch", direction, "pinned")
    workload.step()
    to, back = (True, False, True), (False, True, True)
    assert copies == {"to_device": [to], "from_device": [back], "round_trip": [to, back]}[direction]


def test_what_does_not_arrive_is_a_wrong_result():
    data = Data({}, ({"x": np.array([1.0, 2.0])}, {"x": np.array([3.0, 2.0])}))
    stale = np.array([1.0, 2.0])
    made = workload(data, [None, None], move=lambda _: stale, synchronize=lambda _: None, to_host=lambda result: result)
    assert made.verify(made.step()) is None
    assert made.verify(made.step()) == "1 of 2 numbers are not those that were sent"


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_a_cpu_has_no_pinned_memory_to_choose(cli, framework):
    done = cli("run", f"--framework={framework}", "--problem=transfer", "--memory=pinned", "--device=cpu")
    assert done.returncode == 2
    assert f"transfer in {framework} does not support --memory=pinned with --device=cpu" in done.stderr


def metrics_of(device, direction, **fields):
    made = problem(bytes=10**6, direction=direction)
    case = {"problem": "transfer", "device": device, "params": {"bytes": 10**6, "direction": direction}}
    cost = CostPart(flops=0, recomputed_flops=0, bytes=made.cost("inference", "fp32").bytes, samples=1, tokens=None)
    return derive_metrics(make_record([0.5, 1.5], case=case, cost=cost, **fields))


@pytest.mark.parametrize(("direction", "rate"), [("to_device", 1e6), ("from_device", 1e6), ("round_trip", 2e6)])
def test_a_rate_is_that_of_a_transfer_only_between_host_and_device(direction, rate):
    found = metrics_of("cuda", direction)
    assert found["transfer_bytes_per_s"].value == pytest.approx(rate)
    assert (found["copy_bytes_per_s"].value, found["transfer_bytes_per_s"].reason) == (None, None)
    found = metrics_of("cpu", direction)
    assert found["copy_bytes_per_s"].value == pytest.approx(rate)
    assert found["transfer_bytes_per_s"].value is None
    assert "the device is the host" in found["transfer_bytes_per_s"].reason
    found = metrics_of("cpu", direction, **NOT_TIMED)
    assert (found["copy_bytes_per_s"].value, found["copy_bytes_per_s"].reason) == (None, "no timed block")


def test_a_run_on_a_cpu_is_a_copy_within_memory(cli):
    done = cli("run", "--framework=torch", "--problem=transfer", "--bytes=4K", "--blocks=3", "--device=cpu", "--json")
    assert done.returncode == 0, done.stderr
    (record,) = json.loads(done.stdout)
    blocks, metrics = record["blocks"], record["metrics"]
    step_s = sum(blocks["duration_ns"]) / len(blocks["duration_ns"]) / blocks["steps_per_block"] / 1e9
    assert metrics["copy_bytes_per_s"]["value"] == pytest.approx(4096 / step_s)
    assert metrics["transfer_bytes_per_s"]["value"] is None
