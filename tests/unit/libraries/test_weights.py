"""Weights of a model from a safetensors file: they are those that are measured, or are refused in a line."""

import json

import numpy as np
import pytest
import torch

from benchmarker import UserError, open_bench
from benchmarker.worker import correctness
from benchmarker_problems.libraries.torch import build_workload  # makes torchvision importable

pytest.importorskip("timm")
pytest.importorskip("transformers")
safetensors = pytest.importorskip("safetensors.torch")
assert build_workload
CONFIG = {"n_layer": 1, "n_embd": 8, "n_head": 2, "vocab_size": 31, "n_positions": 16}


def of_timm(folder, **options):
    options = {"model": "test_vit", "image_size": 32, **options}
    return open_bench("timm", "torch", "cpu", weights=str(folder / "model.safetensors"), **options)


def of_transformers(folder, **options):
    (folder / "config.json").write_text(json.dumps(CONFIG))
    files = {"config": str(folder / "config.json"), "weights": str(folder / "model.safetensors")}
    return open_bench("transformers", "torch", "cpu", model="GPT2LMHeadModel", seq_len=8, **files, **options)


def results(bench):
    data = bench.data(bench.problem, 1)
    workload = bench.build(bench.problem, data)
    assert correctness.check(workload, data, bench.problem, bench.case).ok
    return data.batches[0], workload.outputs(workload.step())["0"]


@pytest.fixture
def vit(tmp_path):
    """A model of timm, whose weights are in the file."""
    import timm

    model = timm.create_model("test_vit", img_size=32).eval()
    safetensors.save_file(model.state_dict(), tmp_path / "model.safetensors")
    return model


@pytest.fixture
def gpt2(tmp_path):
    """A model of transformers, whose weights are in the file under the names of the published ones."""
    import transformers

    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**CONFIG)).eval()
    named = {name.removeprefix("transformer."): value for name, value in model.state_dict().items()}
    del named["lm_head.weight"]
    safetensors.save_file(named, tmp_path / "model.safetensors")
    return model


def test_results_are_those_of_the_weights_of_the_file(tmp_path, vit, monkeypatch):
    batch, found = results(of_timm(tmp_path))
    with torch.no_grad():
        assert np.allclose(found, vit(torch.from_numpy(batch["x"])).numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("precision", ["fp32", "fp64"])
def test_names_may_be_those_of_published_weights(tmp_path, gpt2, precision):
    batch, found = results(of_transformers(tmp_path, precision=precision))
    with torch.no_grad():
        logits = gpt2(torch.from_numpy(batch["input_ids"])).logits
    assert np.allclose(found, logits.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("of", [of_timm, of_transformers])
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("lack", r"--weights=\S+model\.safetensors lacks \S*norm\.bias of|lacks \S*ln_f\.bias of GPT2LMHeadModel with"),
        ("more", r"has one\.more, which (test_vit|GPT2LMHeadModel with this config) has not; name the model whose"),
        ("reshape", r"norm\.bias is \[3\], but \[64\] in test_vit|ln_f\.bias is \[3\], but \[8\] in GPT2LMHeadModel"),
        ("text", "not a safetensors file"),
    ],
)
def test_weights_of_another_model_are_refused_in_a_line(tmp_path, vit, of, change, says, request):
    if of is of_transformers:
        request.getfixturevalue("gpt2")
    file = tmp_path / "model.safetensors"
    weights = safetensors.load_file(file)
    name = "norm.bias" if of is of_timm else "ln_f.bias"
    if change == "lack":
        del weights[name]
    else:
        weights[name if change == "reshape" else "one.more"] = torch.zeros(3)
    safetensors.save_file(weights, file)
    if change == "text":
        file.write_text("no weights")
    bench = of(tmp_path)
    with pytest.raises(UserError, match=says) as refused:
        bench.build(bench.problem, bench.data(bench.problem, 1))
    assert "\n" not in str(refused.value)
