"""Profiles of an NVIDIA H200 (driver 580.159, PyTorch 2.11, JAX 0.11.2): GPT-2 of two layers, a kernel of Triton."""

import gzip
import json
from pathlib import Path

import pytest

from benchmarker.traces.ingest import Expected, ingest
from benchmarker.traces.summary import scopes

TRACES = Path(__file__).parents[2] / "fixtures/traces"
LAYERS, STEPS = 2, 3
PER_LAYER = ("ln_1", "attn_qkv", "attn_fused", "attn_proj", "ln_2", "mlp_fc", "mlp_gelu", "mlp_proj")
EXPECTED = {"embed": 1, **dict.fromkeys(PER_LAYER, LAYERS), "ln_f": 1, "lm_head": 1, "loss": 1}


@pytest.mark.parametrize("name", ["h200-torch-gpt2.json.gz", "h200-jax-gpt2.xplane.pb.gz"])
def test_each_scope_ran_as_often_as_it_is_entered(name):
    # cuDNN's attention fills its buffers with four memsets, which are not four runs.
    found = scopes(ingest(TRACES / name, Expected(EXPECTED)).events, STEPS, EXPECTED)
    ran = {each.scope: each.occurrences for each in found if each.phase == "forward" and each.scope in EXPECTED}
    assert ran == {name: count * STEPS for name, count in EXPECTED.items()}


@pytest.mark.parametrize("name", ["h200-torch-gpt2.json.gz", "h200-torch-triton.json.gz"])
def test_kernels_and_times_are_those_of_the_file(name):
    events = ingest(TRACES / name).events
    device = events[events["kind"].isin(["kernel", "copy"])]
    written = json.loads(gzip.decompress((TRACES / name).read_bytes()))["traceEvents"]
    written = [each for each in written if each.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    assert len(device) == len(written)
    assert device["dur_ns"].sum() == sum(round(each["dur"] * 1000) for each in written)


def test_a_kernel_that_no_op_launches_is_forward_in_its_scope():
    (found,) = scopes(
        ingest(TRACES / "h200-torch-triton.json.gz", Expected({"by_triton": 1})).events, 10, {"by_triton": 1}
    )
    assert (found.scope, found.phase, found.occurrences) == ("by_triton", "forward", 10)
