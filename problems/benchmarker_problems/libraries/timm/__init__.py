"""Models of timm by their names."""

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from benchmarker import Problem, hookimpl
from benchmarker_problems.libraries import ImageLibrary


@dataclass(frozen=True)
class Timm(ImageLibrary):
    """A model of timm: its results, its loss and gradients, or an AdamW step."""

    summary = "a model of timm by its name, such as vit_small_patch16_224"
    library = "timm"

    model: Annotated[str, Meta(description="name of the model")] = "resnet50"


@hookimpl
def define_problem() -> type[Problem]:
    """Return the problem of all models of timm."""
    return Timm
