"""Llama: pre-norm decoder with RMSNorm, rotary positions, grouped-query attention and SwiGLU; no biases.

As published (Touvron et al., 2023; Dubey et al., 2024). Llama 3.1 and 3.2 also stretch the rotary angles for long
contexts; that changes the values of a table and no work, and is left out.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from msgspec import Meta

from benchmarker import Problem, Published, hookimpl
from benchmarker_problems.decoder import Decoder
from benchmarker_problems.generation.language_model import PHASE_FORMULA
from benchmarker_problems.layers.layer import Layer
from benchmarker_problems.layers.model import swiglu_mlp

Size = Literal[
    "llama-3.2-1b",
    "llama-3.1-8b",
    "llama-3.1-70b",
    "llama-2-7b",
    "tinyllama-1.1b",
    "cs336-small",
    "cs336-medium",
    "cs336-large",
    "cs336-xl",
    "cs336-2.7b",
]


def _size(
    n_layer: int,
    d_model: int,
    n_head: int,
    n_kv_head: int,
    d_ff: int,
    vocab_size: int,
    *,
    rope_theta: float = 10_000.0,
    tied_head: bool = False,
) -> Mapping[str, Any]:
    return {
        "n_layer": n_layer,
        "d_model": d_model,
        "n_head": n_head,
        "n_kv_head": n_kv_head,
        "d_ff": d_ff,
        "vocab_size": vocab_size,
        "rope_theta": rope_theta,
        "tied_head": tied_head,
    }


SIZES: Mapping[Size, Mapping[str, Any]] = {
    "llama-3.2-1b": _size(16, 2048, 32, 8, 8192, 128_256, rope_theta=500_000.0, tied_head=True),
    "llama-3.1-8b": _size(32, 4096, 32, 8, 14_336, 128_256, rope_theta=500_000.0),
    "llama-3.1-70b": _size(80, 8192, 64, 8, 28_672, 128_256, rope_theta=500_000.0),
    "llama-2-7b": _size(32, 4096, 32, 32, 11_008, 32_000),
    "tinyllama-1.1b": _size(22, 2048, 32, 4, 5632, 32_000),
    "cs336-small": _size(12, 768, 12, 12, 3072, 10_000),
    "cs336-medium": _size(24, 1024, 16, 16, 4096, 10_000),
    "cs336-large": _size(36, 1280, 20, 20, 5120, 10_000),
    "cs336-xl": _size(48, 1600, 25, 25, 6400, 10_000),
    "cs336-2.7b": _size(32, 2560, 32, 32, 10_240, 10_000),
}
"""Published sizes: Meta's checkpoints, TinyLlama (Zhang et al., 2024), and the models of Stanford's course CS336."""
CONTEXTS: Mapping[Size, int] = {
    "llama-3.2-1b": 131_072,
    "llama-3.1-8b": 131_072,
    "llama-3.1-70b": 131_072,
    "llama-2-7b": 4096,
    "tinyllama-1.1b": 2048,
}
"""Context lengths: `max_position_embeddings` of the checkpoints' configs; the course has none."""

_CHECKPOINT = "the checkpoint's config and weights"
_COURSE = "CS336, assignment 2, table 1; 120.9 M reported with one vocabulary matrix"


@dataclass(frozen=True)
class Llama(Decoder):
    """Llama: forward only, forward and backward, or training with AdamW.

    `inference` returns the logits of every position. The loss is the mean cross-entropy of the next token.
    """

    summary = "Llama language model: logits, loss and gradients, or an AdamW step"
    accelerator = {"size": "llama-3.2-1b", "seq_len": 1024, "batch_size": 4, "impl": "fused"}
    cost_formula = (
        "flops = 2·B·T·(L·(2·d_model² + 2·d_model·d_kv + 3·d_model·d_ff + 2·T·d_model) + d_model·vocab), "
        "3 times that with backward; d_kv = d_model·n_kv_head/n_head\n"
        "bytes = weights, tokens and logits once; 2·weights with backward; 7·weights with AdamW's two moments\n"
        + PHASE_FORMULA
    )
    published = (
        Published({"size": "llama-3.2-1b"}, _CHECKPOINT, parameters=1_235_814_400),
        Published({"size": "llama-3.1-8b"}, _CHECKPOINT, parameters=8_030_261_248),
        Published({"size": "llama-3.1-70b"}, _CHECKPOINT, parameters=70_553_706_496),
        Published({"size": "llama-2-7b"}, _CHECKPOINT, parameters=6_738_415_616),
        Published({"size": "tinyllama-1.1b"}, _CHECKPOINT, parameters=1_100_048_384),
        Published({"size": "cs336-small", "tied_head": True}, _COURSE, parameters=120_945_408),
    )

    sizes = SIZES
    contexts = CONTEXTS
    size: Annotated[Size, Meta(description="published size; the eight options below override it")] = "cs336-small"

    def own_size(self) -> str:
        """Return L layers, width d, and H heads of queries / of keys and values."""
        return f"Llama {self.dimensions_title()}/{self.n_kv_head} d_ff={self.d_ff}"

    def mlp(self) -> tuple[Layer, ...]:
        """Return two products with SwiGLU between them."""
        return swiglu_mlp(self.d_model, self.d_ff)

    def fused_widths(self) -> dict[str, list[int]]:
        """Return the widths of queries, keys and values, and of the gate and the other factor."""
        return {**super().fused_widths(), "mlp_fc": [self.d_ff] * 2}


@hookimpl
def define_problem() -> type[Problem]:
    """Return the Llama problem."""
    return Llama
