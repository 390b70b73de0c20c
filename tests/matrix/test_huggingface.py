"""References against the models of Hugging Face `transformers` with the same weights, in fp32.

Mixtral's loss is here, as in `moe`, without the router's term that balances the load. Mixtral renormalises the softmax
over all experts to those chosen, `moe` computes it over the chosen ones alone: the same weights. Which experts are
chosen cannot hang on rounding, as the data keeps the scores of the chosen and the others apart.
"""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
from support.models import problem_of
from transformers_models import (
    PROBLEMS,
    arguments,
    configuration,
    generated,
    make_model,
    translated,
)

from benchmarker import UserError

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def torchvision_can_be_imported():
    """Transformers imports torchvision where it is installed, also beside a PyTorch that its build is not for."""
    pytest.importorskip("benchmarker_problems.libraries.torch")


CASES = [
    ("gpt2", {}),
    ("llama", {"size": "llama-3.1-8b"}),
    ("llama", {"size": "llama-3.2-1b"}),
    ("llama", {"size": "cs336-small"}),
    ("bert", {"size": "base"}),
    ("bert", {"size": "roberta-base"}),
    ("moe", {"dispatch": "grouped"}),
    ("moe", {"dispatch": "grouped", "n_expert": 5, "top_k": 3, "n_kv_head": 8}),
    ("vit", {}),
]
BOUND = 32 * 2**-24
"""That of a check in fp32: 32 unit roundoffs."""


def apart(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Norm of the difference, relative to ours."""
    assert ours.shape == theirs.shape
    return float(np.linalg.norm(theirs - ours) / np.linalg.norm(ours))


def joined(arrays: Iterable[np.ndarray]) -> np.ndarray:
    """All elements of arrays."""
    return np.concatenate([array.ravel() for array in arrays])


def test_every_problem_with_a_counterpart_is_tried():
    assert {name for name, _ in CASES} == set(PROBLEMS)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_outputs_loss_and_gradients_are_those_of_transformers(name, options):
    pytest.importorskip("transformers", minversion="5", reason="transformers 5 is not installed")
    problem = problem_of(name)
    small = problem(**options).small()
    data = small.data("fp32", np.random.default_rng(0), 1)
    (outputs,), (trained,) = (small.reference(data, mode) for mode in ("inference", "forward_backward"))
    model = make_model(name, small, data.weights)
    inputs, labels = arguments(name, small, data.batches[0])
    found = model(**inputs, **labels)
    assert apart(outputs["logits"], found.logits.detach().numpy()) < BOUND
    assert found.loss.item() == pytest.approx(float(trained.pop("loss")), rel=BOUND)
    found.loss.backward()
    theirs = {weight: parameter.grad.numpy() for weight, parameter in model.named_parameters()}
    for weight, gradient in trained.items():
        pieces = translated(name, small, {weight.removeprefix("d_"): gradient})
        # As one, because softmax makes the gradient of the bias of the keys zero.
        assert apart(joined(pieces.values()), joined(theirs.pop(each) for each in pieces)) < BOUND, weight
    assert not theirs


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize(("name", "options"), [("gpt2", {}), ("llama", {"size": "llama-3.2-1b"})])
def test_greedy_tokens_are_those_that_transformers_generates(name, options, cache):
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers", minversion="5", reason="transformers 5 is not installed")
    problem = problem_of(name)
    small = problem(**options, phase="generate", batch_size=2).small()
    small = replace(small, decoding="greedy", prompt_len=17, new_tokens=12, seq_len=32)
    data = small.data("fp32", np.random.default_rng(0), 1)
    (expected,) = small.reference(data, "inference")
    model = make_model(name, small, data.weights).eval()
    prompt_BP = torch.tensor(data.batches[0]["tokens"][:, :17], dtype=torch.int64)
    sequence_BS = generated(model, prompt_BP, 12, cache)
    assert (sequence_BS[:, 17:].numpy() == expected["tokens"]).all()


def test_a_mixture_that_drops_tokens_has_no_counterpart():
    pytest.importorskip("transformers", minversion="5", reason="transformers 5 is not installed")
    with pytest.raises(UserError, match="add --dispatch=grouped"):
        configuration("moe", problem_of("moe")())


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("bert", {"size": "base"}),
        ("bert", {"size": "roberta-large"}),
        ("moe", {"size": "mixtral-8x7b", "dispatch": "grouped"}),
    ],
)
def test_parameters_of_published_sizes_are_those_of_transformers(name, options):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers", minversion="5", reason="transformers 5 is not installed")
    params = problem_of(name)(**options)
    with torch.device("meta"):
        config, class_name = configuration(name, params)
        model = getattr(transformers, class_name)(config)
    assert sum(weight.numel() for weight in model.parameters()) == params.parameter_count()
