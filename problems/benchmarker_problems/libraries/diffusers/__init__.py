"""Denoising models of `diffusers` by the name of a class: UNets, transformers and autoencoders."""

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from benchmarker import Problem, hookimpl
from benchmarker_problems.libraries import ConfiguredLibrary


@dataclass(frozen=True)
class Diffusers(ConfiguredLibrary):
    """One call of a model of diffusers: its results, the mean square of these and its gradients, or an AdamW step."""

    summary = "a UNet, transformer or autoencoder of diffusers by the name of its class, such as UNet2DConditionModel"
    library = "diffusers"

    model: Annotated[str, Meta(description="class of the model")] = "UNet2DConditionModel"
    seq_len: Annotated[int, Meta(ge=1, description="tokens of the text that conditions it")] = 77
    frames: Annotated[int, Meta(ge=1, description="frames of a video, of a model of these")] = 5

    def sizes(self) -> list[str]:
        """Return the sizes of the inputs, and what is not the default."""
        return [*super().sizes(), *([f"image_size={self.image_size}"] if self.image_size else [])]


@hookimpl
def define_problem() -> type[Problem]:
    """Return the problem of all models of diffusers."""
    return Diffusers
