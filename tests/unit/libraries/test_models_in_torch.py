"""What is done to a model of any library in PyTorch: its results, loss, chance, type and scopes."""

from collections import OrderedDict

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.profiler import profile

from benchmarker_problems.libraries.torch import Fed, convert, mark, without_chance


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(2))
        self.head = nn.Linear(3, 4)
        self.dropout = nn.Dropout(0.5)
        self.drop_prob = 0.3
        self.register_buffer("inv_freq", torch.ones(2))
        self.register_buffer("mean", torch.ones(2))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return {"logits": self.head(self.dropout(x)), "hidden": (x,), "cache": object(), "length": torch.tensor(3)}


class WithLoss(Classifier):
    def forward(self, x, labels=None):
        result = OrderedDict(super().forward(x))
        result.loss = torch.tensor(2.5) if labels is not None else None
        return result


X, LABELS = torch.arange(6.0).reshape(2, 3), torch.tensor([1, 3])


def test_results_are_the_floating_point_tensors_in_their_order():
    model = Classifier().eval()
    results = Fed(model, trains=False)(x=X, labels=LABELS)
    assert list(results) == [0, 1]
    assert torch.equal(results[0], model(X)["logits"]) and results[1].shape == (2, 3)


def test_the_loss_is_the_models_own_or_that_of_its_labels_or_a_mean_square():
    model = Classifier().eval()
    logits = model(X)["logits"]
    assert Fed(WithLoss(), trains=True)(x=X, labels=LABELS).item() == 2.5
    assert Fed(model, trains=True)(x=X, labels=LABELS) == cross_entropy(logits, LABELS)
    assert Fed(model, trains=True)(x=X) == logits.square().mean()


def test_nothing_is_dropped_by_chance():
    model = Classifier().train()
    without_chance(model)
    assert (model.dropout.p, model.drop_prob) == (0.0, 0.0)
    assert torch.equal(model(X)["logits"], model(X)["logits"])


def test_weights_and_buffers_have_the_type_asked_for_but_rotary_frequencies_stay():
    model = Classifier()
    convert(model, torch.bfloat16)
    assert {each.dtype for each in model.parameters()} == {torch.bfloat16}
    assert (model.mean.dtype, model.inv_freq.dtype) == (torch.bfloat16, torch.float32)


@pytest.mark.parametrize(
    ("depth", "names"), [(1, {"layers.*": 2, "head": 1, "dropout": 1, "model": 0}), (2, {"model.head": 1})]
)
def test_scopes_are_names_of_modules_to_a_depth(depth, names):
    model = Classifier().eval()
    top = nn.Sequential(OrderedDict(model=model)) if depth == 2 else model
    mark(top, depth)
    with profile(acc_events=True) as profiler:
        top(X)
    found = {event.key: event.count for event in profiler.key_averages()}
    assert {name: found.get(name, 0) for name in names} == names
