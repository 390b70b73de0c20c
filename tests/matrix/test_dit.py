import numpy as np
import pytest
from support.models import problem_of

from benchmarker import UserError
from benchmarker.hooks import parameters
from benchmarker_problems.dit import SIZES
from benchmarker_problems.dit.reference import joined, position_table, time_table
from benchmarker_problems.layers.reference import patches

problem = problem_of("dit")


@pytest.fixture(scope="module")
def small():
    return problem().small()


@pytest.fixture(scope="module")
def data(small):
    return small.data("fp64", np.random.default_rng(0), 1)


def test_cost_by_hand():
    size = {"n_layer": 2, "d_model": 8, "n_head": 2, "d_ff": 5, "patch_size": 2, "image_size": 48, "classes": 7}
    given = problem(**size, batch_size=3)
    patch_count = 3 * 9  # three latents of 6×6 pixels
    first = 2 * (27 * 16 * 8 + 3 * 256 * 8)  # patches of 2·2 pixels with 4 channels; 256 sines and cosines
    block = 4 * 8 * 8 + 2 * 8 * 5
    scores = 2 * 2 * 3 * 2 * 9 * 9 * 4  # two products, three images, two heads, 9·9 scores of width 4
    conditions = 2 * 3 * 8 * (8 + 2 * 48 + 16)  # time step, six modulations of each block, two of the last layer
    forward = given.cost("inference", "fp32")
    assert forward.flops == first + conditions + 2 * (2 * patch_count * block + scores) + 2 * patch_count * 8 * 32
    assert (forward.samples, forward.tokens) == (3, None)
    # Latents and time steps need no gradient.
    assert given.cost("training", "fp32").flops == 3 * forward.flops - first
    blocks = 2 * (block + (3 + 1 + 1) * 8 + 5 + 48 * 9)
    count = 17 * 8 + 257 * 8 + 9 * 8 + 8 * 8 + blocks + 9 * 16 + 9 * 32
    assert given.parameter_count() == count
    latents = 3 * 6 * 6 * 4
    assert forward.bytes == 4 * (count + latents + 2 * 3 + 2 * latents)
    assert given.cost("forward_backward", "fp32").bytes == 4 * (2 * count + latents + 2 * 3 + latents)
    assert given.cost("training", "fp32").bytes == 4 * (7 * count + latents + 2 * 3 + latents)
    parts = given.parts("inference", "fp32")
    hidden, condition = 27 * 8, 3 * 8
    assert parts["modulation"].bytes == 2 * 4 * (3 * 8 + 8 * 48 + 3 * 48)
    assert parts["ln_1"].bytes == 2 * 4 * (hidden + 2 * condition + hidden)
    # The gate and the residual are read beside the input of the last product of each branch.
    assert parts["attn_proj"].bytes == 2 * 4 * (hidden + condition + hidden + 64 + hidden)
    assert parts["mlp_proj"].flops == 2 * 2 * 27 * 5 * 8


PUBLISHED = {
    "s8": (33, 0.36),
    "s4": (33, 1.41),
    "s2": (33, 6.06),
    "b8": (131, 1.42),
    "b4": (130, 5.56),
    "b2": (130, 23.01),
    "l8": (459, 5.01),
    "l4": (458, 19.70),
    "l2": (458, 80.71),
    "xl8": (676, 7.39),
    "xl4": (675, 29.05),
    "xl2": (675, 118.64),
}
"""Millions of parameters, and Gflops (Peebles and Xie, 2023, table 4)."""


@pytest.mark.parametrize("size", SIZES)
def test_parameters_are_those_published_and_gflops_are_multiply_adds(size):
    millions, multiply_adds = PUBLISHED[size]
    params = problem(size=size)
    assert round(params.parameter_count() / 1e6) == millions
    # The paper gives two decimals: 0.36 may be anything from 0.355 to 0.365.
    flops = params.cost("inference", "fp32").flops
    assert flops == pytest.approx(2e9 * multiply_adds, rel=1e-3, abs=1e7)


def test_positions_are_waves_of_the_column_then_of_the_row():
    table = position_table(3, 8)  # two frequencies of each axis: 1 and 1/100
    assert table.shape == (9, 8)
    waves = {place: [np.sin(place), np.sin(place / 100), np.cos(place), np.cos(place / 100)] for place in range(3)}
    np.testing.assert_allclose(table[5], waves[2] + waves[1], rtol=1e-15)  # row 1, column 2
    assert len(np.unique(table.round(9), axis=0)) == 9


def test_time_steps_are_cosines_then_sines_of_128_frequencies():
    table = time_table()
    assert table.shape == (1000, 256)
    frequency = np.exp(-np.log(10_000) * 64 / 128)
    np.testing.assert_allclose(table[999, [64, 128 + 64]], [np.cos(999 * frequency), np.sin(999 * frequency)])
    np.testing.assert_allclose(table[7, [0, 128]], [np.cos(7), np.sin(7)])


def test_joining_patches_restores_the_image():
    image = np.arange(2 * 6 * 6 * 8).reshape(2, 6, 6, 8)
    np.testing.assert_array_equal(joined(patches(image, 2), side=3, patch_size=2), image)


def test_latents_are_noise_mixed_with_the_pattern_of_a_class():
    given = problem(image_size=128, classes=3, batch_size=400)
    data, again = (given.data("fp32", np.random.default_rng(3), 2) for _ in range(2))
    batch, other = data.batches
    assert {name: (value.shape, value.dtype) for name, value in batch.items()} == {
        "latents": ((400, 16, 16, 4), np.float32),
        "timesteps": ((400,), np.int32),
        "labels": ((400,), np.int32),
        "noise": ((400, 16, 16, 4), np.float32),
    }
    for name, value in batch.items():
        np.testing.assert_array_equal(value, again.batches[0][name])
        assert not np.array_equal(value, other[name])
    # ᾱ by its definition: nearly 1 at the first step, 4e-5 at the last.
    steps, kept = batch["timesteps"], np.cumprod([1 - (1e-4 + (0.02 - 1e-4) * step / 999) for step in range(1000)])
    assert (kept[0], kept[-1]) == (pytest.approx(0.9999), pytest.approx(4.036e-5, rel=1e-3))
    assert steps.min() < 20
    assert steps.max() > 980
    clean = batch["latents"] - np.sqrt(1 - kept[steps])[:, None, None, None] * batch["noise"]
    early = steps < 500
    clean = clean[early] / np.sqrt(kept[steps[early]])[:, None, None, None]
    assert clean.std() == pytest.approx(1, abs=0.05)
    labels = batch["labels"]
    assert set(labels) == {0, 1, 2, 3}
    assert (labels == 3).mean() == pytest.approx(0.1, abs=0.05)  # the null class
    # Latents of a class are alike, and those of the null class are of any.
    means = np.stack([clean[labels[early] == each].mean(axis=0) for each in range(3)])
    nearest = np.square(clean[:, None] - means).sum(axis=(2, 3, 4)).argmin(axis=1)
    known = labels[early] < 3
    np.testing.assert_array_equal(nearest[known], labels[early][known])
    assert set(nearest[~known]) == {0, 1, 2}


def test_the_prediction_is_that_of_the_published_architecture(small, data):
    """In the authors' layout, by other ops: a convolution for patches, channels first, PyTorch's own attention."""
    torch = pytest.importorskip("torch")
    p, functional = small, torch.nn.functional
    weights = {name: torch.tensor(weight) for name, weight in data.weights.items()}
    batch = {name: torch.tensor(value) for name, value in data.batches[0].items()}

    def linear(name, x):
        return functional.linear(x, weights[f"{name}.kernel"].T, weights[f"{name}.bias"])

    def norm(x, shift, scale):
        centred = x - x.mean(-1, keepdim=True)
        return centred / (x.var(-1, keepdim=True, correction=0) + 1e-6).sqrt() * (1 + scale) + shift

    def waves(places, width):
        steps = torch.arange(width // 2, dtype=torch.double) / (width // 2)
        angles = places[:, None] * torch.exp(-np.log(10_000) * steps)
        return torch.sin(angles), torch.cos(angles)

    kernel = weights["patch_embed.kernel"].reshape(p.patch_size, p.patch_size, 4, p.d_model).permute(3, 2, 0, 1)
    latents = batch["latents"].double().permute(0, 3, 1, 2)
    x = functional.conv2d(latents, kernel, weights["patch_embed.bias"], stride=p.patch_size).flatten(2).mT
    row, column = torch.meshgrid(torch.arange(p.side), torch.arange(p.side), indexing="ij")
    x = x + torch.cat([*waves(column.flatten(), p.d_model // 2), *waves(row.flatten(), p.d_model // 2)], dim=1)
    time = linear("time_fc", torch.cat(waves(batch["timesteps"], 256)[::-1], dim=1))
    condition = linear("time_out", functional.silu(time)) + weights["label_embed"][batch["labels"].long()]
    for layer in range(p.n_layer):
        modulation = linear(f"h.{layer}.modulation", functional.silu(condition))[:, None]
        shift_1, scale_1, gate_1, shift_2, scale_2, gate_2 = modulation.chunk(6, dim=-1)
        qkv = linear(f"h.{layer}.attn_qkv", norm(x, shift_1, scale_1))
        q, k, v = qkv.reshape(*x.shape[:2], 3, p.n_head, p.head_dim).permute(2, 0, 3, 1, 4)
        heads = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + gate_1 * linear(f"h.{layer}.attn_proj", heads)
        inner = functional.gelu(linear(f"h.{layer}.mlp_fc", norm(x, shift_2, scale_2)), approximate="tanh")
        x = x + gate_2 * linear(f"h.{layer}.mlp_proj", inner)
    shift, scale = linear("modulation_f", functional.silu(condition))[:, None].chunk(2, dim=-1)
    tiles = linear("head", norm(x, shift, scale)).reshape(-1, p.side, p.side, p.patch_size, p.patch_size, 8)
    channels_first = tiles.permute(0, 5, 3, 4, 1, 2).reshape(p.batch_size, -1, p.side, p.side)
    expected = functional.pixel_shuffle(channels_first, p.patch_size).permute(0, 2, 3, 1)
    (found,) = small.reference(data, "inference")
    np.testing.assert_allclose(found["prediction"], expected, rtol=0, atol=1e-13)


def test_every_weight_shows_in_the_prediction(small, data):
    """Modulations that are zero, as when training begins, would hide whole blocks."""
    (exact,) = small.reference(data, "inference")
    assert np.abs(exact["prediction"]).max() > 0.1
    for name, weight in data.weights.items():
        without = type(data)({**data.weights, name: np.zeros_like(weight)}, data.batches)
        (found,) = small.reference(without, "inference")
        difference = np.linalg.norm(found["prediction"] - exact["prediction"]) / np.linalg.norm(exact["prediction"])
        assert difference > 200 * small.numerics("inference", "fp32").bound, name


def test_every_weight_but_those_of_sigma_has_a_gradient(small, data):
    (found,) = small.reference(data, "forward_backward")
    assert found.keys() == {"loss", *(f"d_{name}" for name in data.weights)}
    assert all(np.linalg.norm(value) > 1e-5 for value in found.values())
    by_channel = found["d_head.kernel"].reshape(small.d_model, small.patch_size**2, 8)
    assert (by_channel[..., :4] != 0).all()
    assert (by_channel[..., 4:] == 0).all()
    used = np.flatnonzero(found["d_label_embed"].any(axis=1))
    assert set(used) == set(data.batches[0]["labels"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"d_model": 100}, "d_model=100 is not a multiple of n_head=6"),
        ({"d_model": 18}, "d_model=18 is not a multiple of 4"),
        ({"image_size": 250}, "image_size=250 is not a multiple of 16, 8·patch_size"),
        ({"size": "xl8", "image_size": 96}, "image_size=96 is not a multiple of 64, 8·patch_size"),
        ({"size": "h2"}, "--size=h2"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(options, message):
    with pytest.raises(UserError, match=message):
        parameters.convert(problem, options)


def test_titles_name_what_differs_from_a_published_size():
    assert problem().title("training") == "DiT-S/2 training, B=1 256×256"
    changed = problem(size="xl8", image_size=512, impl="fused", classes=10, batch_size=8, d_ff=64)
    assert changed.title("inference") == "DiT-XL/8 d_ff=64 10 classes inference, B=8 512×512 fused"
    own = problem(patch_size=1)
    assert own.title("forward_backward") == "DiT L=12 d=384 H=6 P=1 fwd+bwd, B=1 256×256"
