"""Models of torchvision, timm and diffusers: their inputs by what they are for, and errors in a line."""

from importlib.util import find_spec

import pytest

from benchmarker import UserError, open_bench
from benchmarker.worker import correctness

OPTIONS = {"batch_size": 2, "image_size": 32}


def opened(library, model, mode="inference", **options):
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    return open_bench(library, "torch", "cpu", model=model, mode=mode, **{**OPTIONS, **options})


@pytest.mark.parametrize(
    ("library", "model", "shapes"),
    [
        ("torchvision", "squeezenet1_1", {"x": (2, 3, 32, 32), "labels": (2,)}),
        ("torchvision", "lraspp_mobilenet_v3_large", {"input": (2, 3, 32, 32), "labels": (2, 32, 32)}),
        ("torchvision", "r3d_18", {"x": (2, 3, 16, 32, 32), "labels": (2,)}),
        ("torchvision", "raft_small", {"image1": (2, 3, 32, 32), "image2": (2, 3, 32, 32)}),
        ("timm", "test_vit", {"x": (2, 3, 32, 32), "labels": (2,)}),
        (
            "diffusers",
            "UNet2DConditionModel",
            {"sample": (2, 4, 32, 32), "timestep": (2,), "encoder_hidden_states": (2, 77, 1280)},
        ),
        (
            "diffusers",
            "DiTTransformer2DModel",
            {"hidden_states": (2, 4, 32, 32), "timestep": (2,), "class_labels": (2,)},
        ),
    ],
)
def test_inputs_are_what_a_model_is_for(library, model, shapes):
    bench = opened(library, model)
    (batch,) = bench.data(bench.problem, 1).batches
    assert {name: array.shape for name, array in batch.items()} == shapes


@pytest.mark.parametrize(("model", "pixels"), [("squeezenet1_1", 224), ("inception_v3", 299)])
def test_images_have_by_default_the_size_for_which_a_model_was_trained(model, pixels):
    bench = opened("torchvision", model, image_size=0, batch_size=1)
    assert bench.data(bench.problem, 1).batches[0]["x"].shape == (1, 3, pixels, pixels)


@pytest.mark.parametrize(("library", "model"), [("torchvision", "squeezenet1_1"), ("timm", "test_vit")])
def test_a_model_trains_and_its_work_is_counted(library, model):
    bench = opened(library, model, "training")
    workload = bench.build(bench.problem, bench.data(bench.problem, 1))
    losses = [workload.outputs(workload.step())["result"].item() for _ in range(8)]
    assert losses[-1] < losses[0]
    assert workload.counted.flops > 0 and workload.counted.samples == 2


def test_training_is_right_where_normalisation_over_few_samples_enlarges_rounding():
    bench = opened("torchvision", "mobilenet_v2", "training")
    data = bench.data(bench.problem, 3)
    check = correctness.check(bench.build(bench.problem, data), data, bench.problem, bench.case)
    assert (check.ok, check.against) == (True, "itself in fp64")


@pytest.mark.parametrize(
    ("library", "model", "says"),
    [
        ("torchvision", "convnext_tinny", "has no model 'convnext_tinny'; did you mean convnext_tiny"),
        ("torchvision", "ssd300_vgg16", "is for detection: its inputs cannot be made"),
        ("diffusers", "UNet4DModel", "has no model 'UNet4DModel'; did you mean UNet"),
        ("diffusers", "HunyuanDiT2DModel", "has no default of in_channels; give a --config that has it"),
        ("diffusers", "UVit2DModel", "needs the argument 'input_ids', which cannot be made from its config"),
        ("timm", "vit_smal_patch16_224", "has no model 'vit_smal_patch16_224'; did you mean vit_small_patch16_224"),
    ],
)
def test_what_cannot_be_measured_is_said_in_a_line(library, model, says):
    bench = opened(library, model)
    with pytest.raises(UserError, match=says):
        bench.data(bench.problem, 1)


def test_a_signal_takes_no_memory_for_the_places_of_an_image():
    bench = opened("diffusers", "UNet1DModel", image_size=0, batch_size=1)
    assert bench.data(bench.problem, 1).batches[0]["sample"].shape == (1, 2, 65536)
