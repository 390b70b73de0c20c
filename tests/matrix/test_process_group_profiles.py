"""Profiles of process groups of real frameworks: devices exchange what the formula says, or differ as explained."""

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
STEPS, LAYERS, WIDTH, VOCABULARY, LENGTH, BATCH = 2, 2, 32, 54, 8, 4
SIZE = [
    f"--n-layer={LAYERS}",
    f"--d-model={WIDTH}",
    "--n-head=2",
    f"--vocab-size={VOCABULARY}",
    f"--seq-len={LENGTH}",
    f"--batch-size={BATCH}",
]
POSITIONS = 1024
"""Positions for which gpt2 has weights."""


def profiled(cli, framework, *words):
    options = ("--device=cpu", "--devices=2", "--blocks=2", "--power=none", "--profile", f"--profile-steps={STEPS}")
    done = cli("run", f"--framework={framework}", *options, *words, "--json")
    assert done.returncode == 0, done.stderr
    (record,) = json.loads(done.stdout)
    trace = record["trace"]
    assert trace is not None, record["reasons"]["trace"]
    assert trace["complete"], trace["missing"]
    return record


def exchanged(record):
    """By kind: count and bytes, and what is expected of both."""
    return {each.pop("op"): tuple(each.values()) for each in record["trace"]["exchanges"]}


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv"])
@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_a_collective_is_one_of_its_size_in_each_step(cli, tmp_path, request, framework, op):
    """With all_reduce, the trial before the profile is timed too."""
    if (framework, op) == ("jax", "broadcast"):
        pytest.skip("XLA's CPU compiler has no broadcast")
    if op != "all_reduce":
        request.getfixturevalue("untimed")
    record = profiled(cli, framework, "--problem=collective", f"--op={op}", "--bytes=65536")
    assert exchanged(record) == {op: (1, 65536, 1, 65536)}
    trace = record["trace"]
    assert [each["device"] for each in trace["devices"] if not each["track"]] == ["cpu:0", "cpu:1"]
    assert 0 < trace["communication_ns"] <= trace["busy_ns"]
    if op == "all_reduce":
        assert cli("validate", str(tmp_path / "results")).returncode == 0
    if op != "send_recv":
        assert 0 <= trace["waiting_ns"] <= trace["communication_ns"]
        assert len(trace["critical_ranks"]) == STEPS


def trained(cli, framework, parallel):
    return profiled(cli, framework, "--problem=gpt2", "--mode=training", f"--parallel={parallel}", *SIZE)


@pytest.mark.usefixtures("untimed")
@pytest.mark.parametrize("parallel", ["dp", "fsdp", "tp"])
def test_pytorch_exchanges_what_the_formula_says(cli, parallel):
    record = trained(cli, "torch", parallel)
    found = exchanged(record)
    assert found.keys() == ({"all_gather", "reduce_scatter"} if parallel == "fsdp" else {"all_reduce"})
    for count, size, expected_count, expected_bytes in found.values():
        assert (count, size) == (expected_count, expected_bytes)
    folder = Path("results", record["run_id"])
    assert (folder / f"{record['trial_id']}.rank1.profile.json.gz").exists()


@pytest.mark.usefixtures("untimed")
def test_xla_sums_each_use_of_a_weight_in_one_exchange(cli):
    """The tied embedding twice, of the positions those that are used, and the loss."""
    ((count, size, expected_count, expected_bytes),) = exchanged(trained(cli, "jax", "dp")).values()
    assert (count, expected_count) == (1, 1)
    assert size == expected_bytes + 4 * (VOCABULARY * WIDTH - (POSITIONS - LENGTH) * WIDTH + 1)


@pytest.mark.usefixtures("untimed")
def test_xla_gathers_each_weight_once(cli):
    """12 weights and biases of each layer, two embeddings, and a norm's scale and bias; the loss is summed."""
    found = exchanged(trained(cli, "jax", "fsdp"))
    weights = 12 * LAYERS + 4
    size = found["reduce_scatter"][1]
    assert found["reduce_scatter"] == (weights, size, LAYERS + 1, size)
    assert found["all_gather"][:2] == (weights, size)
    assert found["all_reduce"] == (1, 4, 0, 0)


@pytest.mark.usefixtures("untimed")
def test_xla_sums_activations_as_the_formula_says(cli):
    sums = 4 * LAYERS
    size = sums * BATCH * LENGTH * WIDTH * 4
    assert exchanged(trained(cli, "jax", "tp")) == {"all_reduce": (sums, size, sums, size)}
