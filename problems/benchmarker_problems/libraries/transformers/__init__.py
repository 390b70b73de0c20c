"""Models of Hugging Face `transformers` by the name of a class, with its default config or one of a file."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from msgspec import Meta

from benchmarker import Problem, hookimpl
from benchmarker_problems.libraries import ConfiguredLibrary


@dataclass(frozen=True)
class Transformers(ConfiguredLibrary):
    """A model of transformers: its results, its loss and gradients, or an AdamW step."""

    summary = "a model of Hugging Face transformers by the name of its class, such as Qwen2ForCausalLM"
    library = "transformers"

    model: Annotated[str, Meta(description="class of the model")] = "GPT2LMHeadModel"
    seq_len: Annotated[int, Meta(ge=1, description="tokens of a text, or frames of audio after convolutions")] = 128
    attention: Annotated[
        Literal["default", "eager", "sdpa", "flash_attention_2", "flex_attention"],
        Meta(description="implementation of attention; default: what transformers chooses"),
    ] = "default"

    def sizes(self) -> list[str]:
        """Return the sizes of the inputs, and what is not the default."""
        given = {"attention": self.attention, "image_size": self.image_size}
        return [
            f"B={self.batch_size} T={self.seq_len}",
            *(f"{name}={value}" for name, value in given.items() if value not in ("", "default", 0)),
        ]

    def helper(self, name: str, precision: str) -> Any:
        """Return the samples of a step, and the tokens of a model of text."""
        return self.builder.tokens(self) if name == "tokens" else super().helper(name, precision)


@hookimpl
def define_problem() -> type[Problem]:
    """Return the problem of all models of transformers."""
    return Transformers
