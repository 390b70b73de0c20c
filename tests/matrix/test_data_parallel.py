"""Training on several devices: the losses of three steps are those of the one-device problem with the same batch."""

import json

import pytest

from benchmarker import UserError
from benchmarker.hooks import registry
from benchmarker_problems.gpt2 import Gpt2Params

SIZE = ("--n-layer=1", "--d-model=32", "--n-head=2", "--vocab-size=53", "--seq-len=8", "--batch-size=8")
PROBLEM = registry.load(["problem.gpt2"]).hook.make_problem()


def trained(cli, framework, devices, precision):
    words = (f"--framework={framework}", f"--devices={devices}", f"--precision={precision}", "--device=cpu", *SIZE)
    done = cli("run", "--problem=gpt2", "--mode=training", *words, "--blocks=3", "--power=none", "--json")
    assert done.returncode == 0, done.stderr
    (record,) = json.loads(done.stdout)
    return record


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "mixed_fp16"])
@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_each_device_works_without_communication_too(cli, framework, precision):
    """A rank that is alone would wait without end if it still exchanged gradients."""
    record = trained(cli, framework, 2, precision)
    local = record["local"]
    assert sorted(local["alone_device"]) == [0, 1]
    assert {len(each) for each in local["together_ns"]} == {2}
    assert {len(each) for each in local["synchronised_ns"]} == {record["case"]["ranks"]}
    assert 0 < record["metrics"]["straggler_score"]["value"] <= 1


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 2, 4])
@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_losses_are_those_of_one_device_in_fp64(cli, framework, devices):
    record = trained(cli, framework, devices, "fp64")
    assert record["check"]["output"] == "loss"
    assert record["check"]["error"] <= 1e-12
    assert record["cost"]["samples"] == 8
    assert record["case"]["ranks"] == {"jax": 1, "torch": devices}[framework]


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "mixed_bf16", "mixed_fp16"])
@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_losses_are_right_in_other_precisions(cli, framework, precision):
    assert trained(cli, framework, 2, precision)["check"]["ok"]


def test_the_check_has_a_sample_for_every_device():
    """With equal parts of one sample each, a rank that trains on another's part would not be seen."""
    small = PROBLEM.on(3).small(Gpt2Params())
    assert small.batch_size == 12
    assert PROBLEM.small(Gpt2Params()).batch_size == 4


@pytest.mark.parametrize(
    ("mode", "params", "message"),
    [
        ("inference", {"batch_size": 4}, "several devices train; give --mode=training, or omit --devices=2"),
        ("training", {"batch_size": 3}, "--batch-size=3 is not a multiple of --devices=2; for example 4"),
        ("training", {"batch_size": 4, "microbatches": 2}, "--microbatches=2 cannot be used with --devices=2"),
    ],
)
def test_what_cannot_be_divided_is_refused(mode, params, message):
    with pytest.raises(UserError, match=message):
        PROBLEM.on(2).refuse(Gpt2Params(**params), mode)
    if "microbatches" not in params:
        PROBLEM.refuse(Gpt2Params(**params), mode)


def test_a_compiled_step_of_several_devices_is_refused(cli):
    words = ("--framework=torch", "--problem=gpt2", "--mode=training", "--devices=2", "--device=cpu", "--batch-size=2")
    done = cli("run", *words, "--compile")
    assert done.returncode == 2
    assert "--compile cannot be used with --devices=2; omit one of them" in done.stderr


def test_weak_scaling_gives_each_device_the_batch_of_one():
    params = Gpt2Params(batch_size=3, n_layer=2)
    grown = PROBLEM.on(4).grown(params, 4)
    assert (grown.batch_size, grown.n_layer) == (12, 2)
    costs = [PROBLEM.cost(each, "training", "fp32") for each in (params, grown)]
    assert costs[1].samples == 4 * costs[0].samples
    assert costs[1].flops == 4 * costs[0].flops
