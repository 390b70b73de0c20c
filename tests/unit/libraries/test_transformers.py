"""Models of transformers: inputs, cost against our formula, and errors in a line."""

import json

import numpy as np
import pytest

from benchmarker import UserError, open_bench

pytest.importorskip("transformers")

GPT2 = {"n_layer": 2, "n_embd": 24, "n_head": 3, "vocab_size": 31, "n_positions": 16}


@pytest.fixture
def opened(tmp_path):
    """Opens a case of a small model."""

    def opened(model, config, mode="inference", **options):
        file = tmp_path / "config.json"
        file.write_text(json.dumps(config))
        return open_bench(
            "transformers", "torch", "cpu", model=model, config=str(file), mode=mode, batch_size=2, seq_len=8, **options
        )

    return opened


@pytest.mark.parametrize("mode", ["inference", "forward_backward", "training"])
def test_the_work_is_that_of_our_model_by_formula(opened, mode):
    """PyTorch's counter sees the same products: our formula counts no other, and attention in full."""
    bench = opened("GPT2LMHeadModel", GPT2, mode)
    workload = bench.build(bench.problem, bench.data(bench.problem, 1))
    ours = open_bench(
        "gpt2", "torch", "cpu", n_layer=2, d_model=24, n_head=3, vocab_size=31, seq_len=8, batch_size=2
    ).problem.cost(mode, "fp32")
    assert workload.counted.flops == pytest.approx(ours.flops, rel=0.01)
    assert (workload.counted.samples, workload.counted.tokens, workload.counted.source) == (2, 16, "torch")


def test_inputs_are_ids_without_special_meaning(opened):
    bench = opened(
        "GPT2LMHeadModel", {**GPT2, "vocab_size": 4, "bos_token_id": 3, "eos_token_id": 3, "pad_token_id": 0}
    )
    (batch,) = bench.data(bench.problem, 1).batches
    assert batch.keys() == {"input_ids", "labels"}
    assert batch["input_ids"].shape == (2, 8) and set(np.unique(batch["input_ids"])) == {1, 2}


def test_a_step_trains_the_weights(opened):
    bench = opened("GPT2LMHeadModel", GPT2, "training")
    workload = bench.build(bench.problem, bench.data(bench.problem, 1))
    losses = [workload.outputs(workload.step())["result"].item() for _ in range(20)]
    assert losses[-1] < 0.95 * losses[0]


def test_experts_are_counted_and_checked(opened):
    """Grouped products do not exist in fp64, and PyTorch's own counter leaves them out."""
    small = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = {**small, "num_key_value_heads": 1, "num_local_experts": 4, "num_experts_per_tok": 2, "vocab_size": 31}
    counted = {}
    for precision in ("fp32", "fp64"):
        bench = opened("MixtralForCausalLM", config, "forward_backward", precision=precision)
        workload = bench.build(bench.problem, bench.data(bench.problem, 1))
        counted[precision] = workload.counted.flops
        assert workload.exact().against == "itself in fp64"
    assert counted["fp32"] == counted["fp64"] > 3 * 2 * 16 * 2 * 3 * 16 * 32


@pytest.mark.parametrize(
    ("model", "config", "says"),
    [
        ("GPT3LMHeadModel", {}, "has no model 'GPT3LMHeadModel'; did you mean GPT2LMHeadModel"),
        ("GPT2Config", {}, "has no model 'GPT2Config'"),
        ("gpt2", {}, "has no model 'gpt2'; did you mean GPT2LMHeadModel?"),
        ("bert-base-uncased", {}, "did you mean BertForMaskedLM?"),
        ("whisper", {}, "did you mean WhisperForConditionalGeneration?"),
        ("GPT2LMHeadModel", {"model_type": "llama"}, r"config\.json@\w+ is of llama, but GPT2LMHeadModel is of gpt2"),
        ("GPT2LMHeadModel", [1], "not a JSON object"),
        (
            "TimeSeriesTransformerModel",
            {"prediction_length": 2},
            "needs the argument 'past_values', which cannot be made",
        ),
    ],
)
def test_what_cannot_be_measured_is_said_in_a_line(opened, model, config, says):
    bench = opened(model, config)
    with pytest.raises(UserError, match=says):
        bench.data(bench.problem, 1)
