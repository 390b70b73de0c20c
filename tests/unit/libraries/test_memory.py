"""Memory of a model of a library: what does not fit is told before it is allocated, and weights are made once."""

import json

import numpy as np
import pytest
import torch

from benchmarker import UserError, open_bench
from benchmarker_problems.libraries import memory
from benchmarker_problems.libraries.torch import LibraryCalls

pytest.importorskip("transformers")

CONFIG = {"n_layer": 1, "n_embd": 8, "n_head": 2, "vocab_size": 31, "n_positions": 16}
PARAMETERS = 31 * 8 + 16 * 8 + 12 * 8 * 8 + 13 * 8 + 2 * 8
"""Of this model: tokens, positions, products of a block, biases and normalisation of it, and that at the end."""


@pytest.fixture
def opened(tmp_path):
    """Opens a case of a small model."""

    def opened(mode="inference", **options):
        (tmp_path / "config.json").write_text(json.dumps(CONFIG))
        sizes = {"seq_len": 8} if "phase" not in options else {"prompt_len": 4, "new_tokens": 2}
        config = str(tmp_path / "config.json")
        return open_bench(
            "transformers", "torch", "cpu", model="GPT2LMHeadModel", config=config, mode=mode, **sizes, **options
        )

    return opened


def built(bench):
    return bench.build(bench.problem, bench.data(bench.problem, 2))


@pytest.mark.parametrize(
    ("mode", "options", "bytes_each", "says"),
    [
        (
            "inference",
            {},
            4,
            "weights of .* parameters take .* and this machine has .* free; try a --config with fewer",
        ),
        ("inference", {"precision": "bf16"}, 4, "weights of .* try a --config with fewer layers"),
        ("inference", {"phase": "generate"}, 4, "weights of .* try a --config with fewer layers"),
        ("inference", {"precision": "fp64"}, 8, "weights of .* try --precision=bf16 or a --config"),
        ("forward_backward", {}, 8, "weights and gradients of .*; try --mode=inference or --precision=bf16 or a"),
        ("training", {"precision": "bf16"}, 8, "weights, gradients and moments of AdamW of .* --mode=inference or a"),
    ],
)
def test_weights_that_do_not_fit_are_refused_before_any_is_allocated(
    opened, monkeypatch, mode, options, bytes_each, says
):
    bench = opened(mode, **options)
    monkeypatch.setattr(memory, "free", lambda _: bytes_each * PARAMETERS - 1)
    with monkeypatch.context() as patch:
        patch.setattr(LibraryCalls, "_new", lambda *_: pytest.fail("it is allocated"))
        with pytest.raises(UserError, match=f"GPT2LMHeadModel does not fit: {says}"):
            built(bench)
    monkeypatch.setattr(memory, "free", lambda _: bytes_each * PARAMETERS)
    built(bench)


@pytest.mark.parametrize("phase", [{}, {"phase": "generate"}])
def test_a_model_whose_copy_in_fp64_does_not_fit_is_not_checked(opened, monkeypatch, phase):
    workload = built(opened(**phase))
    monkeypatch.setattr(memory, "free", lambda _: 8 * PARAMETERS - 1)
    assert "a copy in fp64 to check it by takes" in workload.exact()
    monkeypatch.setattr(memory, "free", lambda _: 8 * PARAMETERS)
    assert workload.exact().steps


@pytest.mark.parametrize(
    ("mode", "precision", "times"),
    [("inference", "fp32", 1), ("forward_backward", "fp32", 1), ("training", "fp32", 1), ("inference", "bf16", 2)],
)
def test_weights_are_drawn_once_unless_they_were_rounded(opened, monkeypatch, mode, precision, times):
    made = []
    new = LibraryCalls._new
    monkeypatch.setattr(LibraryCalls, "_new", lambda calls, kind: made.append(kind) or new(calls, kind))
    workload = built(opened(mode, precision=precision))
    assert workload.exact().steps
    assert len(made) == times


def test_what_training_is_held_to_does_not_hang_on_what_it_did(opened):
    workload = built(opened("training"))
    before = workload.exact().steps
    for _ in range(3):
        workload.step()
    after = workload.exact().steps
    assert all(np.array_equal(one["result"], two["result"]) for one, two in zip(before, after, strict=True))
    assert before[0]["result"] > before[-1]["result"]


def test_a_model_that_cannot_be_built_without_memory_is_not_refused():
    def build():
        weight = torch.nn.Linear(2, 2)
        float(weight.weight[0, 0])
        return weight

    assert memory.weight_count(build) == 0
    assert memory.weight_count(lambda: torch.nn.Linear(2, 3)) == 9
