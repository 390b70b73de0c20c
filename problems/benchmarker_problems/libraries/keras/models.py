"""Models of Keras with weights drawn by NumPy: the same in every framework in which Keras computes.

A framework's module says which one that is before it imports this one.
"""

import math
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from typing import Any

import keras
import numpy as np

from benchmarker import PRECISIONS, UserError
from benchmarker_problems.libraries import unknown
from benchmarker_problems.libraries.files import unchanged
from benchmarker_problems.libraries.keras import Keras

TYPES = {"fp64": "float64", "fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
"""Keras' name of each type of weights."""
CLASSES = 1000
PIXELS = 256
"""Values of a pixel."""
SIZE = 224
SIZES = {
    **dict.fromkeys(("InceptionResNetV2", "InceptionV3", "Xception"), 299),
    **dict.fromkeys(("EfficientNetB1", "EfficientNetV2B1"), 240),
    **dict.fromkeys(("EfficientNetB2", "EfficientNetV2B2"), 260),
    **dict.fromkeys(("EfficientNetB3", "EfficientNetV2B3"), 300),
    **dict.fromkeys(("EfficientNetV2M", "EfficientNetV2L"), 480),
    "EfficientNetB4": 380,
    "EfficientNetB5": 456,
    "EfficientNetB6": 528,
    "EfficientNetB7": 600,
    "EfficientNetV2S": 384,
    "NASNetLarge": 331,
}
"""Height and width of images for which Keras builds a model by default, where they are not `SIZE`."""
CONSTANT = (keras.initializers.Zeros, keras.initializers.Ones, keras.initializers.Constant)
"""What fills weights with one value."""
NUMBER = re.compile(r"(?<!conv)\d+[a-z]?(?=_|$)|(?<=conv)\d+(?=_|$)")
"""What tells layers apart that are alike, as in `block2a_expand_conv`, but not the 2 of `conv2d`."""
Marker = Callable[[str], AbstractContextManager[Any]]


def names() -> list[str]:
    """Return the names of all models."""
    return sorted(name for name in dir(keras.applications) if name[0].isupper())


def require(framework: str) -> None:
    """Raise `UserError` unless Keras computes in this framework: a process can have it in one alone."""
    if (other := keras.config.backend()) != framework:
        raise UserError(f"keras computes in {other} in this process; measure it in {framework} in another")


def build(problem: Keras, precision: str, seed: int) -> keras.Model:
    """Return the model with random weights, which returns logits; nothing in it is left out by chance."""
    size = _size(problem)
    keras.config.set_image_data_format("channels_last")  # whatever a file of the user says
    with _typed(TYPES[PRECISIONS[precision].parameter]), _drawn(np.random.default_rng(seed)):
        model = _maker(problem)(weights=None, input_shape=(size, size, 3), classes=CLASSES, classifier_activation=None)
    _without_chance(model)
    if problem.weights:
        file = unchanged("weights", problem.weights)
        try:
            with warnings.catch_warnings(action="error", category=UserWarning):  # where it leaves weights random
                model.load_weights(file)
        except (KeyError, OSError, ValueError, UserWarning) as error:
            raise UserError(f"--weights={file}: {' '.join(str(error).split())}") from error
    return model


def inputs(problem: Keras, rng: np.random.Generator, given: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return images [B, H, W, C], prepared as Keras does it for this model, and labels; `given` ones replace them."""
    if off := next((name for name in given if name not in ("images", "labels")), None):
        raise UserError(f"{problem.model} takes no argument {off!r}; it takes images and labels")
    size = _size(problem)
    pixels = rng.integers(PIXELS, size=(problem.batch_size, size, size, 3)).astype(np.float32)
    prepare = sys.modules[_maker(problem).__module__].preprocess_input
    labels = rng.integers(CLASSES, size=problem.batch_size)
    return {"images": np.ascontiguousarray(prepare(pixels, data_format="channels_last")), "labels": labels}


def mark(model: keras.Model, depth: int, marker: Marker) -> None:
    """Mark the calls of layers for a profile by their names, those that differ in a number alike: `block*_conv`."""
    for layer in model.layers:
        name = NUMBER.sub("*", layer.name)
        layer.call = _within(marker, name, layer.call)
        if depth > 1 and isinstance(layer, keras.Model):
            mark(layer, depth - 1, marker)


def _within(marker: Marker, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(call)
    def marked(*args: Any, **kwargs: Any) -> Any:
        with marker(name):
            return call(*args, **kwargs)

    return marked


def _maker(problem: Keras) -> Callable[..., keras.Model]:
    """Return the function that makes the model; raises `UserError` if Keras has no model of this name."""
    if problem.model not in names():
        raise unknown("keras", problem.model, names())
    maker: Callable[..., keras.Model] = getattr(keras.applications, problem.model)
    return maker


def _without_chance(model: keras.Model) -> None:
    """Set the probability of everything that a model drops by chance in training to 0."""
    for layer in model.layers:
        for name in ("rate", "drop_path_rate"):
            if hasattr(layer, name) and not isinstance(layer, keras.Model):
                setattr(layer, name, 0.0)
        if isinstance(layer, keras.Model):
            _without_chance(layer)


def _size(problem: Keras) -> int:
    return problem.image_size or SIZES.get(problem.model, SIZE)


@contextmanager
def _typed(name: str) -> Iterator[None]:
    """Let models that are made take, compute and keep numbers of a type."""
    taken, computed = keras.config.floatx(), keras.config.dtype_policy()
    keras.config.set_floatx(name)
    keras.config.set_dtype_policy(name)
    try:
        yield
    finally:
        keras.config.set_floatx(taken)
        keras.config.set_dtype_policy(computed)


@contextmanager
def _drawn(rng: np.random.Generator) -> Iterator[None]:
    """Let NumPy draw the weights of layers that are made: normal, with a variance of 1 / terms of each sum.

    The generators of JAX and PyTorch give other values, and JAX would compile each draw.
    """
    original = keras.Layer.add_weight

    def add_weight(layer: keras.Layer, *args: Any, initializer: Any = None, **kwargs: Any) -> Any:
        of_library = keras.initializers.get(initializer or "glorot_uniform")
        name = kwargs.get("name") or ""
        is_depthwise = isinstance(layer, keras.layers.DepthwiseConv2D) or name.startswith("depthwise")

        def draw(shape: tuple[int, ...], dtype: Any = None) -> np.ndarray:
            terms = math.prod(shape[:2] if is_depthwise else shape[:-1])
            return rng.standard_normal(shape, np.float32) / np.float32(math.sqrt(terms))

        kept = isinstance(of_library, CONSTANT)
        return original(layer, *args, initializer=of_library if kept else draw, **kwargs)

    keras.Layer.add_weight = add_weight
    try:
        yield
    finally:
        keras.Layer.add_weight = original
