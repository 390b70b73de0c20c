import numpy as np
import pytest
from support.models import problem_of

from benchmarker import UserError
from benchmarker.hooks import parameters
from benchmarker_problems.layers.reference import patches

problem = problem_of("vit")


def test_cost_by_hand():
    given = problem(n_layer=2, d_model=8, n_head=2, d_ff=5, patch_size=2, image_size=6, classes=7, batch_size=3)
    tokens = 3 * (9 + 1)
    embedding = 2 * 3 * 9 * 12 * 8  # three images, nine patches of 2·2 pixels with 3 colours
    block = 4 * 8 * 8 + 2 * 8 * 5
    scores = 2 * 2 * 3 * 2 * 10 * 10 * 4  # two products, three images, two heads, 10·10 scores of width 4
    forward = given.cost("inference", "fp32")
    assert forward.flops == embedding + 2 * (2 * tokens * block + scores) + 2 * 3 * 8 * 7
    assert (forward.samples, forward.tokens) == (3, None)
    # Images need no gradient.
    assert given.cost("training", "fp32").flops == 3 * forward.flops - embedding
    count = 12 * 8 + 8 + 8 + 10 * 8 + 2 * (block + (3 + 1 + 1) * 8 + 5 + 2 * 16) + 16 + 8 * 7 + 7
    assert given.parameter_count() == count
    assert forward.bytes == 4 * count + 4 * 3 * 6 * 6 * 3 + 4 * 3 * 7
    assert given.cost("training", "fp32").bytes == 7 * 4 * count + 4 * 3 * 6 * 6 * 3 + 4 * 3
    parts = {mode: given.parts(mode, "fp32") for mode in ("inference", "forward_backward")}
    moved = 4 * (27 * 12 + 12 * 8 + 27 * 8)
    assert [parts[mode]["patch_embed"].bytes for mode in parts] == [moved, 2 * moved]
    assert parts["inference"]["embed"].bytes == 4 * (27 * 8 + 11 * 8 + 30 * 8)


def test_patches_are_squares_of_the_image():
    image = np.arange(2 * 6 * 6 * 3).reshape(2, 6, 6, 3)
    found = patches(image, 2)
    assert found.shape == (2, 9, 12)
    np.testing.assert_array_equal(found[1, 5].reshape(2, 2, 3), image[1, 2:4, 4:6])


@pytest.mark.slow
def test_images_of_a_class_are_alike():
    given = problem(image_size=32, classes=4, batch_size=64)
    data, again = (given.data("fp32", np.random.default_rng(3), 2) for _ in range(2))
    images, targets = data.batches[0]["images"], data.batches[0]["targets"]
    np.testing.assert_array_equal(images, again.batches[0]["images"])
    assert (images.shape, images.dtype, targets.shape) == ((64, 32, 32, 3), np.float32, (64,))
    assert images.std() == pytest.approx(1, abs=0.05)
    assert not np.array_equal(images, data.batches[1]["images"])
    assert set(targets) == set(range(4))
    means = np.stack([images[targets == each].mean(axis=0) for each in range(4)])
    others = data.batches[1]
    distances = np.square(others["images"][:, None] - means).sum(axis=(2, 3, 4))
    np.testing.assert_array_equal(distances.argmin(axis=1), others["targets"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"d_model": 100}, "d_model=100 is not a multiple of n_head=12"),
        ({"image_size": 230}, "image_size=230 is not a multiple of patch_size=16"),
        ({"image_size": 8}, "image_size=8 is not a multiple of patch_size=16"),
        ({"size": "h14"}, "--size=h14"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(options, message):
    with pytest.raises(UserError, match=message):
        parameters.convert(problem, options)


def test_titles_name_what_differs_from_a_published_size():
    assert problem().title("training") == "ViT-B/16 training, B=1 224×224"
    changed = problem(size="l16", image_size=384, impl="fused", classes=10, batch_size=8, d_ff=64)
    assert changed.title("inference") == "ViT-L/16 d_ff=64 10 classes inference, B=8 384×384 fused"
    own = problem(patch_size=32, batch_size=4, recompute=True, microbatches=2)
    expected = "ViT L=12 d=768 H=12 P=32 fwd+bwd, B=4 224×224 recompute in 2 parts"
    assert own.title("forward_backward") == expected
