import re

import numpy as np
import pytest
from support.models import counted_flops, problem_of, profiled_names, torch_workload

from benchmarker import UserError
from benchmarker.hooks import parameters

problem = problem_of("conv")
MODES = ("inference", "forward_backward")
LAYOUTS = ("channels_first", "channels_last")
KINDS = [
    {"dims": 1, "image_size": 10, "stride": 3, "in_channels": 6, "out_channels": 4, "groups": 2},
    {"dims": 2, "image_size": 9, "kernel_size": 4, "stride": 2, "dilation": 2, "in_channels": 3, "out_channels": 5},
    {"dims": 2, "image_size": 7, "padding": 0, "groups": 4, "in_channels": 4, "out_channels": 8},
    {"dims": 3, "image_size": 5, "padding": 2, "stride": 2, "in_channels": 2, "out_channels": 3},
]
"""With each number of dimensions; strides that leave a rest, an even kernel, and depthwise."""


def test_sizes_by_hand():
    given = problem(image_size=224, in_channels=3, kernel_size=7, stride=2)
    assert (given.padding, given.out_size) == (3, 112)
    assert given.shapes == {"x": (8, 224, 224, 3), "w": (7, 7, 3, 64), "out": (8, 112, 112, 64)}
    dilated = problem(dims=3, kernel_size=3, dilation=2, padding=0, image_size=9, groups=4)
    assert dilated.shapes == {"x": (8, 9, 9, 9, 64), "w": (3, 3, 3, 16, 64), "out": (8, 5, 5, 5, 64)}
    assert [problem(dims=dims).image_size for dims in (1, 2, 3)] == [3136, 56, 14]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"groups": 3}, "in_channels=64 is not a multiple of groups=3"),
        ({"groups": 4, "out_channels": 6}, "out_channels=6 is not a multiple of groups=4"),
        (
            {"kernel_size": 9, "padding": 0, "image_size": 8},
            "across 9 elements.* has 8; increase image_size or padding",
        ),
        ({"dims": 4}, "--dims=4"),
    ],
)
def test_a_convolution_that_cannot_be_is_refused(given, message):
    with pytest.raises(UserError, match=message):
        parameters.convert(problem, given)


def test_cost_by_hand():
    given = problem(batch_size=2, in_channels=4, out_channels=6, image_size=8, groups=2, stride=2)
    forward = given.cost("inference", "fp32")
    assert (forward.flops, forward.samples, forward.tokens) == (2 * 2 * 6 * 2 * 9 * 16, 2, None)
    assert forward.bytes == 4 * (2 * 64 * 4 + 9 * 2 * 6 + 2 * 16 * 6)
    both = given.cost("forward_backward", "bf16")
    assert (both.flops, both.bytes) == (3 * forward.flops, forward.bytes)


def test_title():
    assert problem().title("inference") == "conv2d 3×3 64→64, B=8 56×56"
    given = problem(dims=1, stride=2, padding=0, dilation=3, groups=64, layout="channels_first")
    expected = "conv1d 3 64→64, B=8 3136 s=2 p=0 d=3 g=64 channels_first fwd+bwd"
    assert given.title("forward_backward") == expected


def test_small_keeps_the_kind():
    for given in (
        problem(groups=64, stride=2),
        problem(groups=8, dilation=4, kernel_size=7),
        problem(image_size=1, kernel_size=9),
        problem(image_size=100, kernel_size=40, padding=60),
    ):
        small = given.small()
        assert (small.groups == small.in_channels) == (given.groups == given.in_channels)
        assert (small.groups > 1, small.stride > 1) == (given.groups > 1, given.stride > 1)
        assert small.image_size <= 11
    plain = problem().small()
    assert len({plain.batch_size, plain.in_channels, plain.out_channels, plain.image_size, plain.kernel_size}) == 5


@pytest.mark.parametrize("kind", KINDS)
def test_reference_against_a_loop(kind):
    p = problem(batch_size=2, **kind)
    data = p.data("fp64", np.random.default_rng(0), 1)
    (outputs,) = p.reference(data, "inference")
    x, w = data.batches[0]["x"], data.batches[0]["w"]
    per_group = p.in_channels // p.groups
    expected = np.zeros(p.shapes["out"])
    for b, o in np.ndindex(2, p.out_channels):
        first = o // (p.out_channels // p.groups) * per_group
        for place in np.ndindex(*p.dims * (p.out_size,)):
            for within in np.ndindex(*p.dims * (p.kernel_size,)):
                at = tuple(y * p.stride + k * p.dilation - p.padding for y, k in zip(place, within, strict=True))
                if all(0 <= each < p.image_size for each in at):
                    expected[(b, *place, o)] += x[(b, *at)][first : first + per_group] @ w[within][:, o]
    np.testing.assert_allclose(outputs["out"], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_the_reference_are_those_of_jax(x64, kind):
    from benchmarker_problems.conv.jax import step_function

    p = problem(batch_size=2, **kind)
    data = p.data("fp64", np.random.default_rng(0), 1)
    (expected,) = p.reference(data, "forward_backward")
    batch = data.batches[0]
    got = x64.jit(step_function(p, "forward_backward"))(batch["x"], batch["w"], batch["d_out"])
    for (name, exact), value in zip(expected.items(), got, strict=True):
        assert np.linalg.norm(value - exact) < 1e-14 * np.linalg.norm(exact), name


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_pytorch_keeps_the_layout(dims, layout):
    """The output is laid out as the image and the kernel are."""
    pytest.importorskip("torch")
    p = problem(dims=dims, image_size=8, batch_size=2, layout=layout)
    for result in torch_workload("conv", p, "forward_backward").step()[:2]:
        assert result.is_contiguous() == (layout == "channels_first")
        assert result.movedim(1, -1).is_contiguous() == (layout == "channels_last")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_flops_and_scope_in_pytorch(kind, mode, layout):
    pytest.importorskip("torch")

    p = problem(batch_size=2, layout=layout, **kind)
    workload = torch_workload("conv", p, mode)
    # The counter disregards groups in the gradient of the kernel.
    if mode == "inference" or p.groups == 1:
        assert counted_flops(workload) == p.cost(mode, "fp32").flops
    assert profiled_names(workload)["conv"] == 1


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("mode", MODES)
def test_flops_and_scope_in_xla(mode, layout):
    jax = pytest.importorskip("jax")
    from benchmarker_problems.conv import INPUTS, channels_first
    from benchmarker_problems.conv.jax import step_function

    # Without padding, the products with which XLA does not count.
    p = problem(padding=0, layout=layout, image_size=20)
    batch = p.data("fp32", np.random.default_rng(0), 1).batches[0]
    arrays = [batch[name] if layout == "channels_last" else channels_first(name, batch[name]) for name in INPUTS[mode]]
    lowered = jax.jit(step_function(p, mode)).lower(*arrays)
    assert lowered.cost_analysis()["flops"] == pytest.approx(p.cost(mode, "fp32").flops, rel=0.01)
    assert "conv" in re.findall(r"\w+", lowered.as_text(debug_info=True))
