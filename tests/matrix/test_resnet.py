import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from support.models import counted_flops, problem_of, profiled_names, torch_workload

from benchmarker import MODES, Data, UserError
from benchmarker.hooks import parameters

problem = problem_of("resnet")
EVERY_SCOPE = set(problem().scopes("training"))
SIZES = ("18", "50")


def test_layers_of_a_bottleneck_network():
    """He et al., 2015, table 1, with the stride in the 3×3 convolution."""
    given = problem()
    assert len(given.convs) == 1 + 3 * 16 + 4
    first = given.residual[3]
    assert [(each.kernel_size, each.stride, each.inputs, each.outputs, each.out_size) for each in first.convs] == [
        (1, 1, 256, 128, 56),
        (3, 2, 128, 128, 28),
        (1, 1, 128, 512, 28),
    ]
    assert (first.shortcut.stride, first.shortcut.inputs, first.shortcut.outputs) == (2, 256, 512)
    assert given.residual[4].shortcut is None
    assert given.scopes("training") == {
        **dict.fromkeys(("stem_conv", "stem_norm", "stem_pool"), 1),
        **{f"{kind}{number}": 16 for number in (1, 2, 3) for kind in ("conv", "norm")},
        **dict.fromkeys(("shortcut_conv", "shortcut_norm"), 4),
        **dict.fromkeys(("pool", "fc", "loss", "optimizer"), 1),
    }
    basic = problem(size="18")
    assert [len(each.convs) for each in basic.residual] == [2] * 8
    assert [bool(each.shortcut) for each in basic.residual] == [False, False, True, False, True, False, True, False]


def test_cost_by_hand():
    """One basic block of two channels on images of 8×8, which are 4×4 after the stem and 2×2 after its maximum."""
    given = problem(size="18", stages=1, stage_blocks=1, width=2, image_size=8, classes=5, batch_size=3)
    stem, conv, fc = 3 * 16 * 49 * 3 * 2, 3 * 4 * 9 * 2 * 2, 3 * 2 * 5
    forward = given.cost("inference", "fp32")
    assert (forward.flops, forward.samples, forward.tokens) == (2 * (stem + 2 * conv + fc), 3, None)
    # The images need no gradient.
    assert given.cost("training", "fp32").flops == 2 * (2 * stem + 3 * (2 * conv + fc))
    trained = 49 * 3 * 2 + 2 * 9 * 2 * 2 + 3 * 2 * 2 + 2 * 5 + 5
    assert given.parameter_count() == trained
    assert forward.bytes == 4 * (trained + 3 * 2 * 2 + 3 * 64 * 3 + 3 * 5)
    parts = given.parts("inference", "fp32")
    assert parts["conv1"].bytes == 4 * (3 * 4 * 2 + 9 * 2 * 2 + 3 * 4 * 2)
    assert parts["norm1"].bytes == 4 * (3 * 4 * 2 + 2 * 2 + 3 * 4 * 2)
    assert parts["norm2"].bytes - parts["norm1"].bytes == 4 * 3 * 4 * 2  # the shortcut is read too


def test_titles_name_what_is_not_published():
    assert problem().title("training") == "ResNet-50 training, B=4 224×224"
    own = problem(size="18", stages=2, stage_blocks=1, width=8, classes=10, image_size=32, layout="channels_first")
    expected = "ResNet-18 stages=2 blocks=1 width=8 V=10 fwd+bwd, B=4 32×32 channels_first"
    assert own.title("forward_backward") == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": "20"}, "--size=20"),
        ({"stages": 5}, "--stages=5"),
        ({"image_size": 32, "batch_size": 1}, "increase batch_size or image_size"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(options, message):
    with pytest.raises(UserError, match=message):
        parameters.convert(problem, options)


def test_images_have_the_pattern_of_their_class():
    given = problem(classes=3, batch_size=30, image_size=21)
    first, second = given.data("fp32", np.random.default_rng(0), 2).batches
    assert first["images"].shape == (30, 21, 21, 3)
    assert set(first["targets"]) == {0, 1, 2}
    assert not np.array_equal(first["images"], second["images"])
    for label in range(3):
        one, other = (batch["images"][batch["targets"] == label].mean(axis=0) for batch in (first, second))
        assert np.corrcoef(one.ravel(), other.ravel())[0, 1] > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
def test_gradients_of_the_reference_are_those_of_jax(x64, size):
    """Each of them, where `check` compares all as one vector."""
    from benchmarker_problems.layers.reference import cross_entropy
    from benchmarker_problems.resnet import is_statistic
    from benchmarker_problems.resnet.jax import functions

    small = problem(size=size).small()
    data = small.data("fp64", np.random.default_rng(0), 1)
    batch = data.batches[0]
    statistics = {name: value for name, value in data.weights.items() if is_statistic(name)}
    trained = {name: value for name, value in data.weights.items() if name not in statistics}
    logits, pullback = small.forward(trained, batch)
    expected_loss, d_logits = cross_entropy(logits, batch["targets"])
    expected = pullback(d_logits)
    _, loss_of = functions(small, "float64")

    def loss_alone(trained):
        return loss_of(trained | statistics, **batch)[0]

    loss, gradients = x64.jit(x64.value_and_grad(loss_alone))(trained)
    assert float(loss) == pytest.approx(float(expected_loss), rel=1e-13)
    assert gradients.keys() == expected.keys()
    for name, exact in expected.items():
        assert np.linalg.norm(gradients[name] - exact) < 1e-12 * np.linalg.norm(exact), name
    (outputs,) = small.reference(data, "forward_backward")
    assert outputs["gradients"].size == small.parameter_count()


def test_running_statistics_after_training_steps():
    """Of the stem, by hand; of all, the same in both frameworks, but for PyTorch's unbiased variance."""
    pytest.importorskip("torch")
    jax = pytest.importorskip("jax")
    from benchmarker_problems.conv.reference import convolve
    from benchmarker_problems.resnet import SETTINGS, is_statistic
    from benchmarker_problems.resnet.jax import functions
    from benchmarker_problems.resnet.torch import ResnetModel
    from benchmarker_problems.steps.jax import initial_state, sgd, training

    small = replace(problem(size="18").small(), stages=1, stage_blocks=1)
    data = small.data("fp32", np.random.default_rng(0), 1)
    held = []
    before = ResnetModel.__init__
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ResnetModel, "__init__", lambda self, params: (before(self, params), held.append(self))[0])
        workload = torch_workload("resnet", small, "training")
    optimizer = sgd(SETTINGS)
    state = initial_state({name: jax.numpy.asarray(value) for name, value in data.weights.items()}, optimizer, "fp32")
    update = jax.jit(partial(training, functions(small, "float32")[1], optimizer, 1))
    for step in range(2):
        observed = workload.step()["loss"]
        state, loss = update(state, **data.batches[0])
        assert float(loss) == pytest.approx(float(observed), rel=1e-5)
        if step == 0:
            y, _ = convolve(data.batches[0]["images"], data.weights["stem_conv.kernel"], 2, 3)
            for statistic, of_batch in (("mean", y.mean((0, 1, 2))), ("var", y.var((0, 1, 2)))):
                name = f"stem_norm.{statistic}"
                expected = 0.9 * data.weights[name] + 0.1 * of_batch
                np.testing.assert_allclose(state[0][name], expected, rtol=1e-4, atol=1e-5)
    buffers = dict(held[0].named_buffers())
    statistics = [name for name in data.weights if is_statistic(name)]
    assert len(statistics) == len(buffers) == 2 * len(small.convs)
    for conv in small.convs:
        count = small.batch_size * conv.out_size**2
        for statistic in ("mean", "var"):
            name = f"{conv.norm_name}.{statistic}"
            start = data.weights[name]
            in_torch = buffers[f"{conv.norm_name}.running_{statistic}"].numpy()
            if statistic == "var":
                in_torch = 0.81 * start + (in_torch - 0.81 * start) * (count - 1) / count
            np.testing.assert_allclose(state[0][name], in_torch, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", SIZES)
def test_flops_and_scopes_in_pytorch(size, mode):
    pytest.importorskip("torch")

    small = problem(size=size).small()
    workload = torch_workload("resnet", small, mode)
    assert counted_flops(workload) == small.cost(mode, "fp32").flops
    names = profiled_names(workload)
    found = {name: names[name] for name in EVERY_SCOPE if name in names}
    assert found == small.scopes(mode)


def test_forward_and_backward_leave_the_running_statistics_alone_and_inference_uses_them():
    pytest.importorskip("torch")
    small = problem(size="18").small()
    data = small.data("fp64", np.random.default_rng(0), 1)
    shifted = {name: value + 1 if name.endswith(".mean") else value for name, value in data.weights.items()}
    for mode, same in (("inference", False), ("forward_backward", True)):
        (one,), (other,) = (small.reference(Data(weights, data.batches), mode) for weights in (data.weights, shifted))
        assert all(np.array_equal(one[name], other[name]) for name in one) == same


@pytest.mark.parametrize("mode", MODES[:2])
@pytest.mark.parametrize("size", SIZES)
def test_flops_and_scopes_in_xla(size, mode):
    jax = pytest.importorskip("jax")
    from benchmarker_problems.resnet import COLOURS
    from benchmarker_problems.resnet.jax import functions
    from benchmarker_problems.steps.jax import forward_backward

    # XLA does not count products with padding, and counts elementwise work: both are small in a wide network.
    given = problem(size=size, stages=2, stage_blocks=1, width=256, image_size=224, batch_size=2)
    weights = {name: jax.ShapeDtypeStruct(shape, "float32") for name, shape in given.weight_shapes().items()}
    images = jax.ShapeDtypeStruct((2, given.image_size, given.image_size, COLOURS), "float32")
    logits_of, loss_of = functions(given, "float32")
    if mode == "inference":
        lowered = jax.jit(logits_of).lower(weights, images)
    else:
        targets = jax.ShapeDtypeStruct((2,), "int32")
        step = jax.jit(partial(forward_backward, loss_of, 1.0, 1.0, 1))
        lowered = step.lower(weights, images=images, targets=targets)
    assert lowered.cost_analysis()["flops"] == pytest.approx(given.cost(mode, "fp32").flops, rel=0.04)
    found = set(re.findall(r"\w+", lowered.as_text(debug_info=True))) & EVERY_SCOPE
    assert found == set(given.scopes(mode))
