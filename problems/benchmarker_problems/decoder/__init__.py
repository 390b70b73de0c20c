"""Decoders like Llama: pre-norm with RMSNorm, rotary positions and grouped-query attention; no biases.

A model of this kind is a folder with its published sizes and its MLP: its layers, and a function in each framework.
Everything else of it stands here.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from benchmarker import PRECISIONS, Mode
from benchmarker_problems.generation.language_model import LanguageModel, Pass
from benchmarker_problems.layers import DERIVED
from benchmarker_problems.layers.layer import Embedding, Layer, Linear, Norm, Residual, Rope, TiedHead
from benchmarker_problems.layers.transformer import Blocks
from benchmarker_problems.parallel import small_widths

RMS_NORM_EPS = 1e-5


@dataclass(frozen=True, kw_only=True)
class Decoder(LanguageModel):
    """A decoder: forward only, forward and backward, or training with AdamW.

    `inference` returns the logits of every position. The loss is the mean cross-entropy of the next token.
    """

    dimensions: ClassVar[tuple[str, ...]] = ("n_layer", "d_model", "n_head", "n_kv_head", "d_ff")
    multiples = {"n_head": "n_kv_head", "batch_size": "microbatches"}
    divided_widths = ("n_kv_head", "d_model", "d_ff")
    small_batch = 3

    n_layer: Blocks = DERIVED
    d_model: Annotated[int, Meta(ge=1, description="width of the model, an even multiple of n_head")] = DERIVED
    n_head: Annotated[int, Meta(ge=1, description="query heads, a multiple of n_kv_head")] = DERIVED
    n_kv_head: Annotated[int, Meta(ge=1, description="heads of keys and values")] = DERIVED
    d_ff: Annotated[int, Meta(ge=1, description="width within the MLP, or within each expert")] = DERIVED
    vocab_size: Annotated[int, Meta(ge=2, description="number of distinct tokens")] = DERIVED
    rope_theta: Annotated[float, Meta(gt=0, description="base of the rotary angles")] = DERIVED
    tied_head: Annotated[bool, Meta(description="the output head uses the weights of the embedding")] = DERIVED

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.d_model % (2 * self.n_head):
            raise ValueError(f"d_model={self.d_model} is not an even multiple of n_head={self.n_head}")

    @property
    def heads(self) -> tuple[int, int, int]:
        """Numbers of heads of queries, keys and values, in the order of the fused projection."""
        return self.n_head, self.n_kv_head, self.n_kv_head

    def heads_of(self, total: int) -> tuple[int, int]:
        """Return the numbers of heads of queries and of keys among so many in all, which may be a device's share."""
        devices = sum(self.heads) // total
        return self.n_head // devices, self.n_kv_head // devices

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values."""
        return self.n_kv_head

    def layers(self, each: Pass) -> tuple[Embedding, tuple[Layer, ...], tuple[Layer, ...]]:
        """Return the embedding, the layers of a block, and those that give the logits."""
        d_model, vocab_size = self.d_model, self.vocab_size
        attention = (
            Linear("attn_qkv", d_model, sum(self.heads) * self.head_dim, bias=False),
            Rope(self.n_head, self.n_kv_head, self.head_dim, self.rope_theta),
            *self.attention(each),
            Linear("attn_proj", d_model, d_model, bias=False, residual=True),
        )
        norm_1, norm_2, norm_f = (
            Norm(name, d_model, RMS_NORM_EPS, bias=False) for name in ("norm_1", "norm_2", "norm_f")
        )
        untied = Linear("lm_head", d_model, vocab_size, bias=False)
        head = TiedHead("lm_head", d_model, vocab_size) if self.tied_head else untied
        block = Residual(norm_1, attention), Residual(norm_2, self.mlp())
        return Embedding(vocab_size, d_model), block, (norm_f, head)

    @abstractmethod
    def mlp(self) -> tuple[Layer, ...]:
        """Return the layers of the MLP of a block."""

    @abstractmethod
    def own_size(self) -> str:
        """Return what a title states of a size that is not published."""

    def options_title(self) -> str:
        """Return what a title states of further options."""
        return ""

    def mlp_unread(self, precision: str, tokens: int) -> int:
        """Return the bytes of the MLP's weights of a block that so many tokens do not use."""
        return 0

    def size_title(self) -> str:
        """Return the size, or its dimensions unless it is published, and what differs."""
        published = self.sizes[self.size]
        vocabulary = "" if self.vocab_size == published["vocab_size"] else f" V={self.vocab_size}"
        head = "" if self.tied_head == published["tied_head"] else f" {'tied' if self.tied_head else 'untied'}"
        return f"{self.size if self.is_published() else self.own_size()}{vocabulary}{head}"

    def batch_title(self, mode: Mode) -> str:
        """Return the mode, B and T, or the phase with its lengths, and further options."""
        return f"{super().batch_title(mode)}{self.options_title()}"

    def unread(self, rows: int, precision: str) -> int:
        """Return the bytes of weights that no token selects.

        That is rows of an embedding that is not also the output head, and experts that are more than the tokens can
        choose.
        """
        words = 0 if self.tied_head else self.vocab_size - min(rows, self.vocab_size)
        of_words = words * self.d_model * PRECISIONS[precision].parameter_bytes
        return of_words + self.n_layer * self.mlp_unread(precision, rows)

    def fused_widths(self) -> dict[str, list[int]]:
        """Return the widths of the results of a layer that computes several: of queries, keys and values."""
        return {"attn_qkv": [heads * self.head_dim for heads in self.heads]}

    def small_dimensions(self) -> Mapping[str, Any]:
        """Return groups of queries if there are any, and the widths of the model and within the MLP."""
        group = 1 if self.n_kv_head == self.n_head else 2
        n_kv_head, d_ff = small_widths(4 // group, 16, 160, self.parallel, self.devices)
        n_head = group * n_kv_head
        return {"d_model": n_head * 16, "n_head": n_head, "n_kv_head": n_kv_head, "d_ff": d_ff}
