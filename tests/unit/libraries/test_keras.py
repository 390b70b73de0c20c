"""Models of Keras: inputs, weights, and errors in a line. A process has Keras in one framework alone: here in JAX."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarker import UserError, open_bench
from benchmarker.hooks import parameters, registry

if find_spec("keras") is None:
    pytest.skip("keras is not installed", allow_module_level=True)

from benchmarker_problems.libraries.keras import jax as in_jax
from benchmarker_problems.libraries.keras import models  # isort: split

from benchmarker_problems.libraries.keras import tensorflow as in_tensorflow
from benchmarker_problems.libraries.keras import torch as in_torch
from benchmarker_problems.steps import ADAMW

keras = models.keras


def problem(model="MobileNetV2", **options):
    kind = registry.problem("keras")
    return parameters.convert(kind, parameters.resolve(kind, {"model": model, "image_size": 32, **options}, "cpu"))


def weights(seed=0, **options):
    made = models.build(problem(**options), "fp32", seed).weights
    return {each.path: np.asarray(each.value) for each in made}


@pytest.mark.parametrize(("model", "lowest", "highest"), [("EfficientNetB0", 0, 255), ("MobileNetV2", -1, 1)])
def test_images_are_prepared_as_the_model_takes_them(model, lowest, highest):
    made = models.inputs(problem(model, batch_size=2), np.random.default_rng(0), {})
    assert (made["images"].shape, made["labels"].shape) == ((2, 32, 32, 3), (2,))
    assert (made["images"].min(), made["images"].max()) == (lowest, highest)


@pytest.mark.slow
@pytest.mark.parametrize("model", models.names())
def test_images_have_by_default_the_size_for_which_keras_builds_a_model(model):
    with keras.StatelessScope(initialize_variables=False):
        built = getattr(keras.applications, model)(weights=None)
    made = models.inputs(problem(model, image_size=0), np.random.default_rng(0), {})
    any_size = (None, None, 3)  # of MobileNetV3, which is trained at 224
    expected = (224, 224, 3) if built.input_shape[1:] == any_size else built.input_shape[1:]
    assert made["images"].shape[1:] == expected


def test_weights_are_those_of_the_seed_and_others_as_keras_sets_them():
    first, second, other = weights(), weights(), weights(seed=1)
    np.testing.assert_equal(first, second)
    for path, values in first.items():
        assert np.array_equal(values, other[path]) != path.endswith("kernel"), path
    (dense,) = [values for path, values in first.items() if path.endswith("predictions/kernel")]
    assert dense.std() == pytest.approx(1280**-0.5, rel=0.01)
    depthwise = [values.ravel() for path, values in first.items() if path.endswith("depthwise/kernel")]
    assert np.concatenate(depthwise).std() == pytest.approx(1 / 3, rel=0.02)


def test_a_model_has_the_type_of_its_precision_and_others_do_not():
    assert {each.dtype for each in models.build(problem(), "bf16", 0).weights} == {"bfloat16"}
    assert (keras.config.floatx(), keras.config.dtype_policy().name) == ("float32", "float32")
    assert {each.dtype for each in models.build(problem(), "fp32", 0).weights} == {"float32"}


def test_nothing_is_left_out_by_chance():
    dropping = [each for each in models.build(problem("EfficientNetB0"), "fp32", 0).layers if hasattr(each, "rate")]
    assert len(dropping) > 5 and {each.rate for each in dropping} == {0.0}


@pytest.mark.parametrize(
    ("layer", "scope"),
    [
        ("block2a_expand_conv", "block*_expand_conv"),
        ("block6d_dwconv2", "block*_dwconv*"),
        ("conv2_block1_1_conv", "conv*_block*_*_conv"),
        ("conv2d_53", "conv2d_*"),
        ("predictions", "predictions"),
    ],
)
def test_layers_that_differ_in_a_number_have_one_scope(layer, scope):
    assert models.NUMBER.sub("*", layer) == scope


@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")  # Keras' own
def test_weights_of_a_file_replace_random_ones(tmp_path):
    file = tmp_path / "mine.weights.h5"
    models.build(problem(), "fp32", 3).save_weights(file)
    np.testing.assert_equal(weights(seed=4, weights=str(file)), weights(seed=3))
    with pytest.raises(UserError, match=re.escape(f"--weights={file}: ")):
        weights(model="MobileNet", weights=str(file))
    file.write_text("no weights")
    with pytest.raises(UserError, match=re.escape(f"--weights={file}: ")):
        weights(weights=str(file))


def test_what_cannot_be_measured_is_said_in_a_line():
    rng = np.random.default_rng(0)
    with pytest.raises(UserError, match=r"keras [\d.]+ has no model 'MobilNetV2'; did you mean MobileNetV2"):
        models.inputs(problem("MobilNetV2"), rng, {})
    with pytest.raises(UserError, match="MobileNetV2 takes no argument 'x'; it takes images and labels"):
        models.inputs(problem(), rng, {"x": rng})
    with pytest.raises(UserError, match="keras computes in jax in this process; measure it in torch in another"):
        models.require("torch")
    with pytest.raises(UserError, match=r"torch\.compile breaks a model of Keras into pieces.*; omit --compile"):
        in_torch.build_workload(None, SimpleNamespace(compile=True), None, None)
    assert in_jax.names() == in_tensorflow.names() == in_torch.names() == models.names()


@pytest.mark.slow
def test_a_model_trains_in_jax_and_keeps_running_statistics():
    bench = open_bench("keras", "jax", "cpu", mode="training", model="MobileNet", batch_size=2, image_size=32)
    workload = bench.build(bench.problem, bench.data(bench.problem, 1))
    losses = [workload.outputs(workload.step())["result"].item() for _ in range(8)]
    assert losses[-1] < losses[0]
    assert (workload.counted.source, workload.counted.samples) == ("xla", 2)


def test_adamw_in_tensorflow_is_that_of_optax():
    """Of a matrix, which decays, and a vector, which does not."""
    import optax
    import tensorflow as tf

    from benchmarker_problems.steps.jax import adamw

    rng = np.random.default_rng(0)
    weights = [rng.standard_normal(shape).astype(np.float32) for shape in ((3, 4), (4,))]
    optimizer = adamw(ADAMW)
    state = optimizer.init(weights)
    trained = [tf.Variable(each) for each in weights]
    moments = [(tf.Variable(tf.zeros_like(each)), tf.Variable(tf.zeros_like(each))) for each in trained]
    steps = tf.Variable(tf.zeros((), tf.float64))
    for _ in range(3):
        gradients = [rng.standard_normal(each.shape).astype(np.float32) for each in weights]
        updates, state = optimizer.update(gradients, state, weights)
        weights = optax.apply_updates(weights, updates)
        in_tensorflow.adamw(trained, [tf.constant(each) for each in gradients], moments, steps)
    for found, expected in zip(trained, weights, strict=True):
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5)


TRAINING = """
from benchmarker import open_bench
bench = open_bench("keras", "tensorflow", "cpu", mode="training", model="MobileNet", batch_size=2, image_size=32)
workload = bench.build(bench.problem, bench.data(bench.problem, 1))
losses = [workload.outputs(workload.step())["result"].item() for _ in range(8)]
assert losses[-1] < losses[0], losses
assert (workload.counted.source, workload.counted.samples) == ("tensorflow", 2)
"""


@pytest.mark.slow
def test_a_model_trains_in_tensorflow():
    """In a process of its own, whatever Keras would compute in by itself: TensorFlow imports it."""
    env = {**os.environ, "KERAS_BACKEND": "torch"}
    done = subprocess.run([sys.executable, "-c", TRAINING], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
