"""Text generation by the method of transformers: its tokens, their times and work, and errors in a line."""

import json

import numpy as np
import pytest
import torch

from benchmarker import UserError, open_bench
from benchmarker.hooks import parameters, registry
from benchmarker.worker import correctness

pytest.importorskip("transformers")

GPT2 = {"n_layer": 2, "n_embd": 24, "n_head": 3, "vocab_size": 31, "n_positions": 32}
BART = {
    **dict.fromkeys(("encoder_layers", "decoder_layers"), 1),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 2),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim", "d_model"), 16),
    "vocab_size": 31,
    "max_position_embeddings": 32,
}


@pytest.fixture
def built(tmp_path):
    """Builds a case of a small model, with its workload and data."""

    def built(model="GPT2LMHeadModel", config=GPT2, **options):
        (tmp_path / "config.json").write_text(json.dumps(config))
        lengths = {"phase": "generate", "prompt_len": 7, "new_tokens": 5}
        options = {"config": str(tmp_path / "config.json"), "batch_size": 2, **lengths, **options}
        bench = open_bench("transformers", "torch", "cpu", model=model, **options)
        data = bench.data(bench.problem, 2)
        return bench, bench.build(bench.problem, data), data

    return built


@pytest.mark.parametrize(("model", "config"), [("GPT2LMHeadModel", GPT2), ("BartForConditionalGeneration", BART)])
def test_tokens_are_as_many_as_asked_for_and_are_checked(built, model, config):
    bench, workload, data = built(model, config)
    check = correctness.check(workload, data, bench.problem, bench.case)
    assert check.ok and check.against == "itself in fp64 without a cache"
    assert workload.outputs(workload.step())["tokens"].shape == (2, 5)
    assert bench.problem.title("inference") == f"{model} generate, B=2 P=7 N=5, config={bench.problem.config}"


def test_a_request_tells_of_each_token_when_it_is_on_the_host(built, monkeypatch):
    _, workload, _ = built()
    told, fetch = [], torch.Tensor.cpu

    def fetched(tensor):
        told.append("fetch")
        return fetch(tensor)

    monkeypatch.setattr(torch.Tensor, "cpu", fetched)
    workload.tokens(told.append)
    assert [each for each in told if each != "fetch"] == ["first"] + 4 * ["next"]
    assert all(told[at - 1] == "fetch" for at, each in enumerate(told) if each != "fetch")


@pytest.mark.parametrize("phase", [{}, {"phase": "prefill", "new_tokens": 0}])
def test_the_work_is_that_of_our_model_by_formula(built, phase):
    _, workload, _ = built(**phase)
    lengths = (
        {"phase": "generate", "prompt_len": 7, "new_tokens": 5} if not phase else {"phase": "prefill", "prompt_len": 7}
    )
    sizes = {"n_layer": 2, "d_model": 24, "n_head": 3, "vocab_size": 31, "batch_size": 2}
    ours = open_bench("gpt2", "torch", "cpu", **sizes, **lengths).problem.cost("inference", "fp32")
    counted = workload.counted
    assert counted.flops == pytest.approx(ours.flops, rel=0.01)
    assert (counted.samples, counted.input_tokens, counted.source) == (2, 14, "torch")
    assert (counted.tokens, counted.output_tokens) == (ours.tokens, ours.output_tokens)


def test_a_cache_that_forgets_is_found(built, monkeypatch):
    from transformers.cache_utils import DynamicLayer

    bench, workload, data = built()
    remember = DynamicLayer.update

    def forget(layer, keys, values, *args, **kwargs):
        keys, values = remember(layer, keys, values, *args, **kwargs)
        return keys, values.roll(1, dims=-2)

    monkeypatch.setattr(DynamicLayer, "update", forget)
    assert not correctness.check(workload, data, bench.problem, bench.case).ok


def test_other_tokens_in_a_step_are_found(built):
    _, workload, _ = built()
    arguments, tokens = workload.step()
    assert not np.array_equal(
        workload.outputs((arguments, (tokens + 1) % 31))["tokens"], workload.exact().steps[0]["tokens"]
    )
    assert workload.exact().bounds["tokens"] == 0
    assert np.array_equal(workload.outputs((arguments, tokens))["tokens"], workload.exact().steps[0]["tokens"])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"seq_len": 8}, "seq_len means nothing with phase=generate, which has prompt_len and new_tokens"),
        ({"phase": "none"}, "prompt_len means nothing with phase=none, which has seq_len"),
        ({"prompt_len": 0}, "prompt_len=0 is too small for phase=generate: at least 1"),
    ],
)
def test_lengths_that_mean_nothing_are_refused(options, says):
    kind = registry.problem("transformers")
    given = {"phase": "generate", "prompt_len": 7, **options}
    with pytest.raises(UserError, match=says):
        parameters.convert(kind, parameters.resolve(kind, given, "cpu"))


def test_a_phase_is_refused_in_training():
    with pytest.raises(UserError, match="--phase=generate needs --mode=inference"):
        parameters.convert(registry.problem("transformers"), {"phase": "generate"}).refuse("training")


def test_a_model_that_generates_no_text_says_so(built):
    config = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 31}
    with pytest.raises(UserError, match="BertModel generates no text"):
        built("BertModel", {**config, "intermediate_size": 8})
