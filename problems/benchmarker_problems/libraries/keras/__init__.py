"""Models of `keras.applications` by their names: the same code and weights in JAX, TensorFlow and PyTorch."""

from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any

from msgspec import Meta

from benchmarker import Problem, hookimpl
from benchmarker_problems.libraries import ImageLibrary


@dataclass(frozen=True)
class Keras(ImageLibrary):
    """A model of keras.applications: its results, its loss and gradients, or an AdamW step."""

    summary = "a model of keras.applications by its name, such as EfficientNetV2B0"
    frameworks = ("jax", "tensorflow", "torch")
    library = "keras"

    model: Annotated[str, Meta(description="name of the model")] = "ResNet50"
    weights: Annotated[str, Meta(description="file of Keras with weights, .weights.h5; empty: random ones")] = ""

    @property
    def builder(self) -> Any:
        """The module that builds models for the framework in which Keras computes in this process."""
        return import_module(f"{__name__}.models")


@hookimpl
def define_problem() -> type[Problem]:
    """Return the problem of all models of Keras."""
    return Keras
