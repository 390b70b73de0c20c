"""Models of Hugging Face `transformers` by the name of a class, with its default config or one of a file."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from msgspec import Meta

from benchmarker import Mode, Problem, UserError, hookimpl
from benchmarker_problems.layers import DERIVED
from benchmarker_problems.libraries import ConfiguredLibrary

LENGTHS = {"none": {"seq_len": 128}, "prefill": {"prompt_len": 128}, "generate": {"prompt_len": 128, "new_tokens": 32}}
"""The lengths that each phase has, with their defaults."""


@dataclass(frozen=True)
class Transformers(ConfiguredLibrary):
    """A model of transformers: its results, its loss and gradients, or an AdamW step."""

    summary = "a model of Hugging Face transformers by the name of its class, such as Qwen2ForCausalLM"
    library = "transformers"

    model: Annotated[str, Meta(description="class of the model")] = "GPT2LMHeadModel"
    seq_len: Annotated[int, Meta(ge=0, description="tokens of a text, or frames of audio after convolutions")] = DERIVED
    attention: Annotated[
        Literal["default", "eager", "sdpa", "flash_attention_2", "flex_attention"],
        Meta(description="implementation of attention; default: what transformers chooses"),
    ] = "default"
    phase: Annotated[
        Literal["none", "prefill", "generate"],
        Meta(
            description="text generation by the library's `generate`, greedy, with its KV cache: the first token of a "
            "prompt (prefill), or several tokens (generate); none: whole sequences without a cache"
        ),
    ] = "none"
    prompt_len: Annotated[int, Meta(ge=0, description="tokens of a prompt, for prefill and generate")] = DERIVED
    new_tokens: Annotated[int, Meta(ge=0, description="tokens generated per sequence, for generate")] = DERIVED

    def __post_init__(self) -> None:
        super().__post_init__()
        lengths = LENGTHS[self.phase]
        for name in ("seq_len", "prompt_len", "new_tokens"):
            if getattr(self, name) is DERIVED:
                object.__setattr__(self, name, lengths.get(name, 0))
            elif name in lengths and not getattr(self, name):
                raise ValueError(f"{name}=0 is too small for phase={self.phase}: at least 1")
            elif name not in lengths and getattr(self, name):
                raise ValueError(f"{name} means nothing with phase={self.phase}, which has {' and '.join(lengths)}")

    @property
    def length(self) -> int:
        """The tokens of a text that is read."""
        return self.seq_len if self.phase == "none" else self.prompt_len

    def refuse(self, mode: Mode) -> None:
        """Refuse phases in other modes than inference, and models of a hub."""
        if self.phase != "none" and mode != "inference":
            raise UserError(f"--phase={self.phase} needs --mode=inference")
        super().refuse(mode)

    def title(self, mode: str) -> str:
        """Return the model, the mode or phase, and sizes."""
        return super().title(mode if self.phase == "none" else self.phase)

    def sizes(self) -> list[str]:
        """Return the sizes of the inputs, and what is not the default."""
        lengths = {"prefill": f"P={self.length}", "generate": f"P={self.length} N={self.new_tokens}"}.get(
            self.phase, f"T={self.length}"
        )
        given = {"attention": self.attention, "image_size": self.image_size}
        return [
            f"B={self.batch_size} {lengths}",
            *(f"{name}={value}" for name, value in given.items() if value not in ("", "default", 0)),
        ]

    def helper(self, name: str, precision: str) -> Any:
        """Return the samples of a step, and the tokens of a model of text."""
        return self.builder.tokens(self) if name == "tokens" else super().helper(name, precision)


@hookimpl
def define_problem() -> type[Problem]:
    """Return the problem of all models of transformers."""
    return Transformers
