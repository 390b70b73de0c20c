"""Models of Hugging Face `transformers` by the name of a class, with its default config or one of a file."""

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from benchmarker import Problem, UserError, hookimpl
from benchmarker_problems.libraries import ImageSize, Library

DIGITS = 12
"""Digits of its digest that stand behind the name of a config file."""


@dataclass(frozen=True)
class Transformers(Library):
    """A model of transformers: its results, its loss and gradients, or an AdamW step."""

    summary = "a model of Hugging Face transformers by the name of its class, such as Qwen2ForCausalLM"
    library = "transformers"

    model: Annotated[str, Meta(description="class of the model")] = "GPT2LMHeadModel"
    config: Annotated[str, Meta(description="config.json of the model; empty: the default of its class")] = ""
    seq_len: Annotated[int, Meta(ge=1, description="tokens of a text, or frames of audio after convolutions")] = 128
    image_size: ImageSize = 0
    attention: Annotated[
        Literal["default", "eager", "sdpa", "flash_attention_2", "flex_attention"],
        Meta(description="implementation of attention; default: what transformers chooses"),
    ] = "default"

    def __post_init__(self) -> None:
        if self.config and "@" not in self.config:
            object.__setattr__(self, "config", f"{self.config}@{_digest(self.config)}")

    def sizes(self) -> list[str]:
        """Return the sizes of the inputs, and what is not the default."""
        given = {"config": self.config, "attention": self.attention, "image_size": self.image_size}
        return [
            f"B={self.batch_size} T={self.seq_len}",
            *(f"{name}={value}" for name, value in given.items() if value not in ("", "default", 0)),
        ]

    def helper(self, name: str, precision: str) -> Any:
        """Return the samples of a step, and the tokens of a model of text."""
        return self.builder.tokens(self) if name == "tokens" else super().helper(name, precision)

    def config_file(self) -> Path:
        """Return the config file; raises `UserError` if it is not what it was when the run was planned."""
        name, _, digest = self.config.rpartition("@")
        if _digest(name) != digest:
            raise UserError(f"{name} changed after the run was planned; start a new run")
        return Path(name)


def _digest(name: str) -> str:
    try:
        return sha256(Path(name).read_bytes()).hexdigest()[:DIGITS]
    except OSError as error:
        raise UserError(f"--config={name}: {error.strerror}") from error


@hookimpl
def define_problem() -> type[Problem]:
    """Return the problem of all models of transformers."""
    return Transformers
