"""Models of libraries by their names, such as `--problem=transformers --model=GPT2LMHeadModel`.

A library is a package here: its class has the options, and its module `torch` builds the model and makes inputs for it.
A model is then measured as a class of the user is: its results are held to its own in float64, which checks rounding
alone, and the framework counts its work.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module, metadata
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from msgspec import Meta

from benchmarker import Data, Mode, Source, UserError
from benchmarker_problems.own import Foreign, arguments

DIGITS = 12
"""Digits of its digest that stand behind the name of a config file."""
Batch = Annotated[int, Meta(ge=1, description="samples a step")]
ImageSize = Annotated[int, Meta(ge=0, description="height and width of an image in pixels; 0: as the model has it")]


@dataclass(frozen=True)
class Library(Foreign):
    """A model of a library, with random weights; nothing is downloaded. A subclass has `model` among its options."""

    cost_formula = "FLOPs as the framework counts them in a step: those of matrix products and convolutions"
    frameworks = ("torch",)
    library: ClassVar[str] = ""
    """The name of the library, of its distribution, and of the extra that installs it."""

    batch_size: Batch = 1
    depth: Annotated[
        int, Meta(ge=1, description="names in the longest scope of a profile, such as 2: model.layers.*")
    ] = 3

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not cls.library:
            return
        cls.distributions = (cls.library,)
        cls.source = Source(cls.library, sha256(f"{cls.library} {_version(cls.library)}".encode()).hexdigest())

    @property
    def measured(self) -> str:
        """The name of the model."""
        return str(self.model)  # type: ignore[attr-defined]

    @property
    def builder(self) -> Any:
        """The module that builds models and makes their inputs; it imports the library."""
        return import_module(f"{type(self).__module__}.torch")

    def title(self, mode: Mode) -> str:
        """Return the model, the mode, and what of its options is not the default: `vit_b_16 training, batch_size=4`."""
        head = self.measured if mode == "inference" else f"{self.measured} {mode}"
        return ", ".join([head, *self.sizes()])

    def sizes(self) -> list[str]:
        """Return the sizes of the inputs in words."""
        return [f"B={self.batch_size}"]

    def scopes(self, mode: Mode) -> Mapping[str, int]:
        """Return nothing: which modules a model has is not known here."""
        return {}

    def refuse(self, mode: Mode) -> None:
        """Raise `UserError` for the name of a model on a hub."""
        if "/" in self.measured or "@" in self.measured:
            raise UserError(
                f"{self.measured} is on a hub, from which nothing is downloaded; give the name of a model in "
                f"{self.library} as `benchmarker list models --problem={self.library}` shows it"
            )

    def data(self, precision: str, rng: np.random.Generator, batches: int) -> Data:
        """Return inputs that fit the model; weights are those of the library, from the seed of the case."""
        return arguments.taken(self.measured, [self.builder.inputs(self, rng) for _ in range(batches)], precision)

    def helper(self, name: str, precision: str) -> Any:
        """Return the samples of a step; the rest is not known here."""
        return self.batch_size if name == "samples" else None


@dataclass(frozen=True)
class ImageLibrary(Library):
    """A model of images."""

    image_size: ImageSize = 0

    def sizes(self) -> list[str]:
        """Return the sizes of the inputs."""
        return [*super().sizes(), *([f"{self.image_size}×{self.image_size}"] if self.image_size else [])]


@dataclass(frozen=True)
class ConfiguredLibrary(Library):
    """A model of the default config of its class, or of a file whose digest stands behind its name."""

    config: Annotated[str, Meta(description="config.json of the model; empty: the default of its class")] = ""
    image_size: ImageSize = 0

    def __post_init__(self) -> None:
        if self.config and "@" not in self.config:
            object.__setattr__(self, "config", f"{self.config}@{_digest(self.config)}")

    def read_config(self) -> dict[str, Any]:
        """Return what the file says; raises `UserError` if it is no JSON object, or not what it was in the plan."""
        name, _, digest = self.config.rpartition("@")
        if not name:
            return {}
        if _digest(name) != digest:
            raise UserError(f"{name} changed after the run was planned; start a new run")
        try:
            values = json.loads(Path(name).read_bytes())
        except ValueError as error:
            raise UserError(f"--config={name}: not JSON: {error}") from error
        if not isinstance(values, dict):
            raise UserError(f"--config={name}: not a JSON object")
        return values


def _digest(name: str) -> str:
    try:
        return sha256(Path(name).read_bytes()).hexdigest()[:DIGITS]
    except OSError as error:
        raise UserError(f"--config={name}: {error.strerror}") from error


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""
