"""Every claim of `gpu-proof` on the GPU of this machine: `pytest -m gpu`."""

import math

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
@pytest.mark.parametrize("name", ["product-torch", "product-jax", "copy-torch", "loop-jax", "trace-torch", "trace-jax"])
def test_a_claim_can_be_rehearsed_on_a_cpu(name, tmp_path):
    """Every call of the tool works, and there is a figure; the verdict of a timing on a busy CPU is chance."""
    told = []
    prove("gpu-proof", tmp_path, "cpu", seconds=math.inf, only=[name], say=told.append)
    assert told[-1].figure
    assert told[-1].verdict == "PASS" or name.split("-")[0] in ("product", "copy", "loop")
