"""GPT-2: pre-LN decoder with learned positions, tanh-approximate GELU and an output head tied to the embedding.

As published (Radford et al., 2019), with a bias in every linear layer, but without dropout.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from msgspec import Meta

from benchmarker import PRECISIONS, Problem, Published, hookimpl
from benchmarker_problems.generation.language_model import PHASE_FORMULA, LanguageModel, Pass
from benchmarker_problems.layers import DERIVED, fill
from benchmarker_problems.layers.layer import Embedding, Layer, Norm, TiedHead
from benchmarker_problems.layers.model import transformer_block
from benchmarker_problems.layers.reference import gelu_tanh
from benchmarker_problems.layers.transformer import Blocks, Heads, InnerWidth, Width
from benchmarker_problems.parallel import small_widths

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

    sizes = SIZES
    contexts = CONTEXTS
    divided_widths = ("n_head", "d_model", "d_ff")
    small_batch = 4

    size: Annotated[Size, Meta(description="published size; the five options below override it")] = "small"
    n_layer: Blocks = DERIVED
    d_model: Width = DERIVED
    n_head: Heads = DERIVED
    d_ff: InnerWidth = DERIVED
    vocab_size: Annotated[int, Meta(ge=2, description="number of distinct tokens; 50257 if omitted")] = DERIVED

    def __post_init__(self) -> None:
        fill(self, {"vocab_size": VOCAB_SIZE})
        super().__post_init__()

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

    def size_title(self) -> str:
        """Return the published size of these dimensions or L layers, width d and H heads, and what differs."""
        own = [getattr(self, name) for name in self.dimensions]
        size = next((name for name, of in SIZES.items() if [*of.values()] == own), self.dimensions_title())
        vocabulary = "" if self.vocab_size == VOCAB_SIZE else f" V={self.vocab_size}"
        return f"GPT-2 {size}{self.inner_title()}{vocabulary}"

    def small_dimensions(self) -> Mapping[str, Any]:
        """Return three heads or more, and the widths of the model and within the MLP."""
        head_dim = 16 if self.weight_type == "full" else 32
        n_head, d_ff = small_widths(3, head_dim, 160, self.parallel, self.devices)
        return {"d_model": n_head * head_dim, "n_head": n_head, "d_ff": d_ff}

    def fused_widths(self) -> dict[str, list[int]]:
        """Return the widths of queries, keys and values, which one layer of a block computes."""
        return {"attn_qkv": [self.d_model] * 3}


@hookimpl
def define_problem() -> type[Problem]:
    """Return the GPT-2 problem."""
    return Gpt2
