"""An accelerator of PyTorch that is neither CUDA nor ROCm: what its backend has is used, the rest has a reason."""

import json
import os

import pytest
from support.accelerator import install

from benchmarker.planning import capabilities

RUN = (
    "run",
    "--framework=torch",
    "--problem=gemm",
    "--m=64",
    "--n=64",
    "--k=64",
    "--power=none",
    "--blocks=2",
    "--json",
)


@pytest.fixture(scope="module")
def backend(tmp_path_factory):
    """The distribution of the played accelerator."""
    folder = tmp_path_factory.mktemp("backend")
    install(folder)
    return folder


@pytest.fixture
def played(cli, toy_folder, backend, monkeypatch):
    """Runs a command on a machine with the played accelerator; answers are not kept from or for other machines."""
    monkeypatch.setenv(capabilities.VARIABLE, str(backend / "abilities"))

    def run(*words, **env):
        return cli(*words, env={"PYTHONPATH": os.pathsep.join([str(backend), str(toy_folder)]), **env})

    return run


def measured(done):
    assert done.returncode == 0, done.stderr
    (record,) = json.loads(done.stdout)
    return record


def test_a_trial_on_another_accelerator(played):
    record = measured(played(*RUN, "--device=played"))
    assert (record["device"]["platform"], record["device"]["name"]) == ("played", "Played One")
    assert record["check"]["ok"]
    assert record["case"]["device"] == "played"
    assert record["reasons"]["memory.device_peak_bytes"] == "torch counts no allocations on played"
    assert record["reasons"]["device_time"] == "torch on played has no clock but the host's"
    assert record["reasons"]["device.memory_bytes"] == "torch reports none for played"
    assert record["types"]["settings"] == {"float32_matmul_precision": "highest"}


def test_it_is_preferred_and_each_block_ends_when_it_is_idle(played):
    record = measured(played(*RUN, PLAYED_SYNC_S="0.0002", PLAYED_PEAK="4096"))
    assert record["case"]["device"] == "played"
    assert record["memory"]["device_peak_bytes"] == 4096
    assert min(record["blocks"]["duration_ns"]) >= 50e6  # about a thousand times as long as it takes to synchronise


def test_what_arrives_there_is_what_was_sent(played):
    of_transfer = ("--problem=transfer", "--bytes=4096", "--direction=round_trip")
    record = measured(played("run", "--framework=torch", *of_transfer, "--power=none", "--blocks=2", "--json"))
    assert (record["case"]["device"], record["check"]["ok"]) == ("played", True)
    assert record["metrics"]["transfer_bytes_per_s"]["value"] > 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--problem=gpt2", "--precision=mixed_bf16"), "played (Played One) does not support mixed_bf16 in torch"),
        (("--problem=gemm", "--precision=tf32"), "played (Played One) does not support tf32 in torch"),
        (("--problem=gpt2", "--mode=training", "--devices=2"), "--devices=2: torch sees 1 played (Played One) here"),
        (
            ("--problem=transfer", "--memory=pinned"),
            "transfer in torch does not support --memory=pinned with --device=pl",
        ),
        (("--problem=gemm", "--device=xpu"), "reports no device 'xpu' here; it reports: played, cpu"),
    ],
)
def test_what_it_cannot_do_is_refused_before_the_run(played, words, message):
    done = played("run", "--framework=torch", *words)
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr


@pytest.mark.slow
def test_without_a_profiler_the_profile_has_its_reason(played):
    record = measured(played(*RUN, "--profile", "--profile-steps=2"))
    assert record["reasons"]["trace"].endswith("PyTorch's profiler recorded nothing of played")
