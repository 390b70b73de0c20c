"""GPT-2: pre-LN decoder with learned positions, tanh-approximate GELU and an output head tied to the embedding.

As published (Radford et al., 2019), with a bias in every linear layer, but without dropout.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal, Self

from msgspec import Meta

from benchmarker import PRECISIONS, Mode, Problem, Published, hookimpl
from benchmarker_problems.attention import IMPL_HELP, Impl
from benchmarker_problems.generation import (
    SEQ_LEN_HELP,
    CacheOption,
    DecodingOption,
    Depth,
    NewTokens,
    PhaseOption,
    PromptLen,
    fill_lengths,
    phase_title,
    small_lengths,
)
from benchmarker_problems.generation.language_model import PHASE_FORMULA, LanguageModel, Pass
from benchmarker_problems.layers import DERIVED, fill, require_multiples
from benchmarker_problems.layers.layer import Embedding, Layer, Norm, TiedHead
from benchmarker_problems.layers.model import transformer_block
from benchmarker_problems.layers.reference import gelu_tanh
from benchmarker_problems.parallel import divides_batch, small_widths
from benchmarker_problems.quantization import WeightTypeOption, require_quantizable
from benchmarker_problems.steps import MICROBATCHES_HELP, RECOMPUTE_HELP, steps_title

Size = Literal["small", "medium", "large", "xl", "2.7b"]
SIZES: Mapping[Size, Mapping[str, int]] = {
    "small": {"n_layer": 12, "d_model": 768, "n_head": 12},
    "medium": {"n_layer": 24, "d_model": 1024, "n_head": 16},
    "large": {"n_layer": 36, "d_model": 1280, "n_head": 20},
    "xl": {"n_layer": 48, "d_model": 1600, "n_head": 25},
    "2.7b": {"n_layer": 32, "d_model": 2560, "n_head": 32},
}
"""GPT-2's four sizes (Radford et al., 2019, table 2), and GPT-3 2.7B (Brown et al., 2020, table 2.1)."""
PUBLISHED: Mapping[Size, int] = {
    "small": 124_439_808,
    "medium": 354_823_168,
    "large": 774_030_080,
    "xl": 1_557_611_200,
}
"""Parameters of the published checkpoints; the paper's table 2 has other, rounded ones, which its authors corrected."""
VOCAB_SIZE = 50257
POSITIONS = 1024
LAYER_NORM_EPS = 1e-5
CONTEXTS: Mapping[Size, int] = {**dict.fromkeys(PUBLISHED, POSITIONS), "2.7b": 2048}
"""Context lengths (Radford et al., 2019, section 2.3; Brown et al., 2020, section 2.1)."""


@dataclass(frozen=True)
class Gpt2(LanguageModel):
    """GPT-2: forward only, forward and backward, or training with AdamW.

    `inference` returns the logits of every position. The loss is the mean cross-entropy of the next token.
    """

    summary = "GPT-2 language model: logits, loss and gradients, or an AdamW step"
    accelerator = {"seq_len": 1024, "batch_size": 8, "impl": "fused"}
    published = tuple(
        Published({"size": size}, "checkpoints of OpenAI, 2019", parameters=count) for size, count in PUBLISHED.items()
    )
    cost_formula = (
        "flops = 2·B·T·(L·(4·d_model² + 2·d_model·d_ff + 2·T·d_model) + d_model·vocab), 3 times that with backward\n"
        "bytes = weights, tokens and logits once; 2·weights with backward; 7·weights with AdamW's two moments\n"
        + PHASE_FORMULA
    )

    divided_widths = ("n_head", "d_model", "d_ff")

    size: Annotated[Size, Meta(description="published size; the five options below override it")] = "small"
    n_layer: Annotated[int, Meta(ge=1, description="transformer blocks")] = DERIVED
    d_model: Annotated[int, Meta(ge=1, description="width of the model, a multiple of n_head")] = DERIVED
    n_head: Annotated[int, Meta(ge=1, description="attention heads")] = DERIVED
    d_ff: Annotated[int, Meta(ge=1, description="width within the MLP; 4·d_model if omitted")] = DERIVED
    vocab_size: Annotated[int, Meta(ge=2, description="number of distinct tokens; 50257 if omitted")] = DERIVED
    seq_len: Annotated[int, Meta(ge=1, description=SEQ_LEN_HELP)] = DERIVED
    batch_size: Annotated[int, Meta(ge=1, description="sequences per step")] = 1
    impl: Annotated[Impl, Meta(description=IMPL_HELP)] = "matmul"
    recompute: Annotated[bool, Meta(description=RECOMPUTE_HELP)] = False
    microbatches: Annotated[int, Meta(ge=1, description=MICROBATCHES_HELP)] = 1
    phase: PhaseOption = "none"
    prompt_len: PromptLen = DERIVED
    depth: Depth = DERIVED
    new_tokens: NewTokens = DERIVED
    decoding: DecodingOption = "greedy"
    weight_type: WeightTypeOption = "full"
    kv_cache: CacheOption = "fit"

    def __post_init__(self) -> None:
        fill(self, SIZES[self.size])
        fill(self, {"d_ff": 4 * self.d_model, "vocab_size": VOCAB_SIZE})
        require_multiples(self, d_model="n_head", batch_size="microbatches")
        fill_lengths(self, CONTEXTS[self.size])
        require_quantizable(self, "d_model", "d_ff")

    @property
    def positions(self) -> int:
        """Rows of the position table: GPT-2's 1024, or more if a sequence is longer."""
        return max(POSITIONS, self.seq_len)

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values: one for each query head."""
        return self.n_head

    def layers(self, each: Pass) -> tuple[Embedding, tuple[Layer, ...], tuple[Layer, ...]]:
        """Return the embedding, the layers of a block, and those that give the logits."""
        d_model = self.d_model
        block = transformer_block(d_model, self.attention(each), self.d_ff, gelu_tanh, LAYER_NORM_EPS)
        head = Norm("ln_f", d_model, LAYER_NORM_EPS), TiedHead("lm_head", d_model, self.vocab_size)
        return Embedding(self.vocab_size, d_model, each.tokens, self.positions), block, head

    def unread(self, rows: int, precision: str) -> int:
        """Return the bytes of the positions that a phase does not read; the head reads the whole embedding."""
        positions = 0 if self.phase == "none" else self.positions - rows // self.batch_size
        return positions * self.d_model * PRECISIONS[precision].parameter_bytes

    def title(self, mode: Mode) -> str:
        """Return the size (L layers, width d, H heads unless it is published), the mode, B and T.

        `GPT-2 small training, B=1 T=128`. What is rarely changed follows if it differs from GPT-2's.
        """
        sizes = {"n_layer": self.n_layer, "d_model": self.d_model, "n_head": self.n_head}
        size = next(
            (name for name, of in SIZES.items() if of == sizes), f"L={self.n_layer} d={self.d_model} H={self.n_head}"
        )
        inner = "" if self.d_ff == 4 * self.d_model else f" d_ff={self.d_ff}"
        vocabulary = "" if self.vocab_size == VOCAB_SIZE else f" V={self.vocab_size}"
        impl = "" if self.impl == Gpt2.impl else f" {self.impl}"
        steps = steps_title(recompute=self.recompute, microbatches=self.microbatches)
        what = f"{mode.replace('forward_backward', 'fwd+bwd')}, B={self.batch_size} T={self.seq_len}"
        what = what if self.phase == "none" else phase_title(self)
        return f"GPT-2 {size}{inner}{vocabulary} {what}{impl}{steps}"

    def small(self) -> Self:
        """Return at most two layers with dimensions that all differ; every fused kernel supports a head size of 16.

        What several devices divide, the batch or the widths, has something for each of them.
        """
        head_dim = 16 if self.weight_type == "full" else 32
        n_head, d_ff = small_widths(3, head_dim, 160, self.parallel, self.devices)
        return replace(
            self,
            n_layer=min(self.n_layer, 2),
            d_model=n_head * head_dim,
            n_head=n_head,
            d_ff=d_ff,
            vocab_size=97,
            batch_size=4 * self.microbatches * (self.devices if divides_batch(self.parallel) else 1),
            **small_lengths(self),
        )

    def fused_widths(self) -> dict[str, list[int]]:
        """Return the widths of queries, keys and values, which one layer of a block computes."""
        return {"attn_qkv": [self.d_model] * 3}


@hookimpl
def define_problem() -> type[Problem]:
    """Return the GPT-2 problem."""
    return Gpt2
