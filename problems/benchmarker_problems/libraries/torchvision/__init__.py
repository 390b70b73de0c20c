"""Models of torchvision by their names."""

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from benchmarker import Problem, hookimpl
from benchmarker_problems.libraries import ImageLibrary


@dataclass(frozen=True)
class Torchvision(ImageLibrary):
    """A model of torchvision: its results, its loss and gradients, or an AdamW step."""

    summary = "a model of torchvision by its name, such as convnext_tiny"
    library = "torchvision"

    model: Annotated[str, Meta(description="name of the model")] = "resnet50"


@hookimpl
def define_problem() -> type[Problem]:
    """Return the problem of all models of torchvision."""
    return Torchvision
