"""References against the models of torchvision with the same weights.

Gradients of `resnet` are compared in fp64. In fp32, one of the 10⁶ activations may be so near 0 that rounding decides
whether ReLU passes its gradient, and all gradients together are then up to 0.5% off. They are also compared with at
most two blocks a stage: normalisation over a batch amplifies rounding with depth. One unit in the last place of the
data moves them by 20 (ResNet-18) and 29 unit roundoffs (bottlenecks). From those in 80-bit arithmetic, ours are 30
and 44 off, PyTorch's 38 and 54 (AMD EPYC with AVX-512). A bound of 32 would be luck; they may be apart by four times
what the last place of the data decides, as a check's bound is about four times the error of an order of additions.
Alone, each block stays within the bound of a check: 25 unit roundoffs or less.
"""

from collections import OrderedDict
from dataclasses import replace

import numpy as np
import pytest
from support.models import problem_of
from support.torchvision import torchvision_models

from benchmarker_problems.layers.layer import chain, shapes_of
from benchmarker_problems.resnet import as_one_gradient
from benchmarker_problems.steps import is_statistic

pytestmark = pytest.mark.slow
PUBLISHED = [
    *(("resnet", size, f"resnet{size}") for size in ("18", "34", "50", "101", "152")),
    ("vit", "b16", "vit_b_16"),
    ("vit", "l16", "vit_l_16"),
]
NAMES = {
    "resnet": {
        "stem_conv": "conv1",
        "stem_norm": "bn1",
        "shortcut_conv": "downsample.0",
        "shortcut_norm": "downsample.1",
        **{f"norm{number}": f"bn{number}" for number in (1, 2, 3)},
    },
    "vit": {
        "patch_embed": "conv_proj",
        "wpe": "encoder.pos_embedding",
        "h": "encoder.layers",
        **{str(layer): f"encoder_layer_{layer}" for layer in range(12)},
        "attn_qkv": "self_attention.in_proj",
        "attn_proj": "self_attention.out_proj",
        "mlp_fc": "mlp.0",
        "mlp_proj": "mlp.3",
        "ln_f": "encoder.ln",
        "head": "heads.head",
    },
}
LEAVES = {"kernel": "weight", "scale": "weight", "mean": "running_mean", "var": "running_var"}
"""Names of theirs by those of ours, part by part."""


def theirs(problem_name, name):
    """Name in torchvision of one of our weights or running statistics."""
    names = NAMES[problem_name] | LEAVES
    return ".".join(names.get(part, part) for part in name.split(".")).replace("in_proj.", "in_proj_")


def in_their_layout(array, shape):
    """Our weights in the shape of theirs: [outputs, inputs, *size] for a kernel."""
    if len(shape) == 4:
        return array.reshape(*shape[2:], shape[1], shape[0]).permute(3, 2, 0, 1).contiguous()
    return array.mT if len(shape) == 2 else array.reshape(shape)


def two_blocks_a_stage(models):
    """A network of bottlenecks."""
    return models.ResNet(models.resnet.Bottleneck, [2, 2, 2, 2])


def apart(ours, found):
    """Norm of the difference, relative to ours."""
    return np.linalg.norm(found - ours) / np.linalg.norm(ours)


def in_the_last_place(array, rng):
    """The array with a random unit in the last place, -1, 0 or 1, added to each number; integers as they are."""
    return array + rng.integers(-1, 2, array.shape) * np.spacing(array) if array.dtype.kind == "f" else array


def moved_by_the_last_place(params, data):
    """How far the last place of weights and images moves the gradients, relative to them."""
    rng = np.random.default_rng(1)
    weights, *batches = (
        {name: in_the_last_place(array, rng) for name, array in arrays.items()}
        for arrays in (data.weights, *data.batches)
    )
    (ours,), (moved,) = (
        params.reference(each, "forward_backward")
        for each in (data, replace(data, weights=weights, batches=tuple(batches)))
    )
    return apart(ours["gradients"], moved["gradients"])


@pytest.mark.parametrize(
    ("name", "options", "make_model", "precision", "backward"),
    [
        ("resnet", {"size": "18"}, lambda models: models.resnet18(), "fp32", False),
        ("resnet", {"size": "18"}, lambda models: models.resnet18(), "fp64", True),
        ("resnet", {"size": "50"}, lambda models: models.resnet50(), "fp32", False),
        ("resnet", {"size": "50", "stage_blocks": 2}, two_blocks_a_stage, "fp64", True),
        ("vit", {"size": "b16"}, lambda models: models.vit_b_16(image_size=64), "fp32", True),
    ],
    ids=["resnet18 fp32", "resnet18 fp64", "resnet50 fp32", "resnet50 with two blocks a stage fp64", "vit_b_16 fp32"],
)
def test_outputs_loss_and_gradients_are_those_of_torchvision(name, options, make_model, precision, backward):
    model = make_model(torchvision_models())
    import torch

    problem = problem_of(name)
    params = problem(**options, image_size=64, batch_size=8 if name == "resnet" else 2)
    data = params.data(precision, np.random.default_rng(0), 1)
    weights = {
        each: torch.tensor(array).requires_grad_(backward and not is_statistic(each))
        for each, array in data.weights.items()
    }
    shapes = {each: value.shape for each, value in model.state_dict().items() if "num_batches" not in each}
    renamed = {theirs(name, each): weight for each, weight in weights.items()}
    state = {each: in_their_layout(weight, shapes[each]) for each, weight in renamed.items()}
    assert state.keys() == shapes.keys()
    images, labels = data.batches[0].values()
    # With channels last, PyTorch sums over a batch less accurately: gradients are twice as far off.
    images_BCHW = torch.tensor(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))

    with torch.no_grad():
        logits = torch.func.functional_call(model.eval(), state, images_BCHW)
    found = {"logits": logits.numpy()}
    logits = torch.func.functional_call(model.train(), state, images_BCHW)
    loss = torch.nn.functional.cross_entropy(logits, torch.tensor(labels, dtype=torch.int64))
    found["loss"] = np.asarray(loss.item())
    if backward:
        loss.backward()
        gradients = {f"d_{each}": weight.grad.numpy() for each, weight in weights.items() if not is_statistic(each)}
        found |= as_one_gradient(gradients) if name == "resnet" else gradients
    for mode in ("inference", "forward_backward"):
        (outputs,) = params.reference(data, mode)
        for each, expected in outputs.items():
            if backward or each in ("logits", "loss"):
                bound = params.numerics(mode, precision).bound
                if each == "gradients":
                    bound = 4 * moved_by_the_last_place(params, data)
                assert apart(expected, found.pop(each)) < bound, each
    assert not found


def blocks_of(model):
    """The stem, the residual blocks and the head of a network of theirs, with what their weights' names begin with."""
    from torch import nn

    stem = nn.Sequential(OrderedDict((name, getattr(model, name)) for name in ("conv1", "bn1", "relu", "maxpool")))
    head = nn.Sequential(OrderedDict(avgpool=model.avgpool, flatten=nn.Flatten(), fc=model.fc))
    stages = [(f"layer{number}", getattr(model, f"layer{number}")) for number in (1, 2, 3, 4)]
    return [
        ("", stem),
        *((f"{name}.{at}.", block) for name, stage in stages for at, block in enumerate(stage)),
        ("", head),
    ]


def channels(array):
    """An array of images with its channels second."""
    return np.ascontiguousarray(np.moveaxis(array, -1, 1))


@pytest.mark.parametrize(
    ("options", "make_model"),
    [({"size": "18"}, lambda models: models.resnet18()), ({"size": "50", "stage_blocks": 2}, two_blocks_a_stage)],
    ids=["resnet18", "resnet50 with two blocks a stage"],
)
def test_each_block_of_resnet_is_that_of_torchvision(options, make_model):
    """Outputs and gradients in fp64, each block with the outputs of ours before it and a random gradient behind it."""
    model = make_model(torchvision_models()).double().train()
    import torch

    params = problem_of("resnet")(**options, image_size=64, batch_size=4)
    rng = np.random.default_rng(0)
    data = params.data("fp64", rng, 1)
    x, bound = data.batches[0]["images"], params.numerics("forward_backward", "fp64").bound
    for (prefix, block), stage in zip(blocks_of(model), params.model().stages, strict=True):
        ours = {name: data.weights[name] for name in shapes_of(stage.layers) if not is_statistic(name)}
        y, pullback = chain(stage.layers, x, ours)
        d_y = rng.standard_normal(y.shape)
        d_x, d_ours = pullback(d_y)
        shapes = {name: value.shape for name, value in block.state_dict().items()}
        weights = {name: torch.tensor(array).requires_grad_() for name, array in ours.items()}
        names = {name: theirs("resnet", name).removeprefix(prefix) for name in ours}
        state = {names[name]: in_their_layout(weight, shapes[names[name]]) for name, weight in weights.items()}
        inputs = torch.tensor(channels(x)).requires_grad_()
        outputs = torch.func.functional_call(block, state, inputs)
        outputs.backward(torch.tensor(channels(d_y)))
        found = np.concatenate([weight.grad.numpy().ravel() for weight in weights.values()])
        assert apart(channels(y), outputs.detach().numpy()) < bound, prefix
        assert apart(channels(d_x), inputs.grad.numpy()) < bound, prefix
        assert apart(np.concatenate([d_ours[name].ravel() for name in weights]), found) < bound, prefix
        x = y


@pytest.mark.parametrize(("name", "size", "model_name"), PUBLISHED)
def test_parameters_and_flops_are_those_of_torchvision(name, size, model_name):
    models = torchvision_models()
    import torch

    problem = problem_of(name)
    params = problem(size=size)
    with torch.device("meta"):
        model = models.get_model(model_name)
    published = models.get_model_weights(model_name).IMAGENET1K_V1.meta
    counted = sum(weight.numel() for weight in model.parameters())
    assert params.parameter_count() == counted == published["num_params"]
    # `_ops` are 10⁹ multiply-adds of one image, rounded to three digits.
    one_image = problem(size=size, batch_size=1).cost("inference", "fp32")
    assert one_image.flops == pytest.approx(2e9 * published["_ops"], rel=0.001)
