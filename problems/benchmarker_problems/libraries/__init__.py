"""Models of libraries by their names, such as `--problem=transformers --model=GPT2LMHeadModel`.

A library is a package here: its class has the options, and its module `torch` builds the model and makes inputs for it.
A model is then measured as a class of the user is: its results are held to its own in float64, which checks rounding
alone, and the framework counts its work.
"""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module, metadata
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from msgspec import Meta

from benchmarker import Data, Mode, Source, UserError
from benchmarker_problems.libraries import files
from benchmarker_problems.own import Foreign, arguments, seeded

FILES = ("config", "inputs", "weights")
"""Options that name files of the user."""
Batch = Annotated[int, Meta(ge=1, description="samples a step")]
ImageSize = Annotated[int, Meta(ge=0, description="height and width of an image in pixels; 0: as the model has it")]


@dataclass(frozen=True)
class Library(Foreign):
    """A model of a library, with random weights or those of a file. A subclass has `model` among its options."""

    cost_formula = "FLOPs as the framework counts them in a step: those of matrix products and convolutions"
    frameworks: ClassVar[tuple[str, ...]] = ("torch",)
    library: ClassVar[str] = ""
    """The name of the library, of its distribution, and of the extra that installs it."""

    batch_size: Batch = 1
    depth: Annotated[
        int, Meta(ge=1, description="names in the longest scope of a profile, such as 2: model.layers.*")
    ] = 3
    inputs: Annotated[
        str,
        Meta(description="Python file whose function `inputs` returns arguments of the model; they replace those made"),
    ] = ""

    weights: Annotated[str, Meta(description="safetensors file with weights of the model; empty: random ones")] = ""

    def __post_init__(self) -> None:
        for name in FILES:
            if value := getattr(self, name, ""):
                object.__setattr__(self, name, files.with_digest(name, value))

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

    def title(self, mode: str) -> str:
        """Return the model, the mode, and what of its options is not the default: `vit_b_16 training, batch_size=4`."""
        head = self.measured if mode == "inference" else f"{self.measured} {mode}"
        given = {name: getattr(self, name, "") for name in FILES}
        return ", ".join([head, *self.sizes(), *(f"{name}={value}" for name, value in given.items() if value)])

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
        return arguments.taken(self.measured, [self.arguments(rng) for _ in range(batches)], precision)

    def arguments(self, rng: np.random.Generator) -> dict[str, Any]:
        """Return a set of inputs: those of the user's file, and what else the model needs."""
        given = files.given_inputs(self.inputs, vars(self), seeded(rng)) if self.inputs else {}
        return {**self.builder.inputs(self, rng, given), **given}

    def user_files(self) -> tuple[Path, ...]:
        """Return the config and the file that gives inputs; weights are too large to be handed on."""
        named = {name: getattr(self, name, "") for name in FILES if name != "weights"}
        return tuple(files.unchanged(name, value) for name, value in named.items() if value)

    @property
    def code_files(self) -> frozenset[str]:
        """The name of the file that gives inputs."""
        return frozenset({self.inputs.rpartition("@")[0]} - {""})

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

    def read_config(self) -> dict[str, Any]:
        """Return what the file says; raises `UserError` if it is no JSON object, or not what it was in the plan."""
        return files.read_object("config", self.config)


def unknown(library: str, model: str, names: Sequence[str], meant: str | None = None) -> UserError:
    """Return the error of a model that a library does not have, with the one that is meant, or similar names."""
    near = [meant] if meant else difflib.get_close_matches(model, names, n=3, cutoff=0.4)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return UserError(f"{library} {metadata.version(library)} has no model {model!r}{hint}")


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""
