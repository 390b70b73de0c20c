"""Every claim of `gpu-proof` on the GPU of this machine: `pytest -m gpu`."""

import math
from dataclasses import replace

import pytest

from benchmarker.proving.proof import load_proof, prove

PROOF = load_proof("gpu-proof")


@pytest.mark.gpu
@pytest.mark.parametrize("name", [claim.name for claim in PROOF.claims])
def test_a_claim_holds_on_the_gpu(name, tmp_path):
    if reason := PROOF.missing("cuda"):
        pytest.skip(reason)
    told = []
    prove("gpu-proof", tmp_path, "cuda", seconds=math.inf, only=[name], say=told.append)
    if told[-1].verdict == "not here":
        pytest.skip(told[-1].reason)
    assert told[-1].verdict == "PASS", told[-1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "product-torch",
        "product-jax",
        "copy-torch",
        "loop-jax",
        "trace-torch",
        "trace-jax",
        "quick-ceilings-torch",
    ],
)
def test_a_claim_can_be_rehearsed_on_a_cpu(name, tmp_path, monkeypatch):
    """Every call of the tool works, and there is a figure; the verdict of a timing on a busy CPU is chance.

    So is the time that it takes: the limits are those of a GPU.
    """
    patient = replace(PROOF, claims=tuple(replace(each, limit_s=10 * each.limit_s) for each in PROOF.claims))
    monkeypatch.setattr("benchmarker.proving.proof.load_proof", lambda _: patient)
    told = []
    prove("gpu-proof", tmp_path, "cpu", seconds=math.inf, only=[name], say=told.append)
    assert told[-1].figure, told[-1]
    assert told[-1].verdict == "PASS" or name.split("-")[0] in ("product", "copy", "loop", "quick"), told[-1]
