"""Mixture of experts: a decoder like Mixtral, whose MLPs are experts of which a router chooses `top_k` per token.

Pre-norm with RMSNorm, rotary positions, grouped-query attention and SwiGLU experts; no biases (Jiang et al., 2024).
The router is a product in fp32 at least, and its softmax is over the chosen logits.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Self

import numpy as np
from msgspec import Meta

from benchmarker import Collective, Mode, Problem, Published, Work, hookimpl
from benchmarker_problems.decoder import Decoder
from benchmarker_problems.generation.language_model import PHASE_FORMULA
from benchmarker_problems.layers import DERIVED, Shapes, fill, linear_shapes
from benchmarker_problems.layers.layer import Layer
from benchmarker_problems.layers.reference import Pullback, Weights
from benchmarker_problems.layers.work import RowWork
from benchmarker_problems.moe.reference import mixture
from benchmarker_problems.quantization import kernel_bytes

Size = Literal["mixtral-8x7b", "moe-small"]
Dispatch = Literal["grouped", "capacity"]
DISPATCH_HELP = (
    "dispatch of tokens to experts: sorted, with grouped products of any length (grouped; on a CPU, JAX multiplies "
    "every row with every expert), or a fixed number of slots per sequence and expert, with batched products; tokens "
    "beyond it are dropped (capacity)"
)

SIZES: Mapping[Size, Mapping[str, Any]] = {
    "mixtral-8x7b": {
        "n_layer": 32,
        "d_model": 4096,
        "n_head": 32,
        "n_kv_head": 8,
        "d_ff": 14_336,
        "n_expert": 8,
        "top_k": 2,
        "vocab_size": 32_000,
        "rope_theta": 1_000_000.0,
        "tied_head": False,
    },
    "moe-small": {
        "n_layer": 4,
        "d_model": 256,
        "n_head": 8,
        "n_kv_head": 2,
        "d_ff": 896,
        "n_expert": 8,
        "top_k": 2,
        "vocab_size": 10_000,
        "rope_theta": 10_000.0,
        "tied_head": False,
    },
}
"""A published size, and one in its proportions for a CPU."""
CONTEXTS: Mapping[Size, int] = {"mixtral-8x7b": 32_768}
"""Context lengths: `max_position_embeddings` of the checkpoint's config."""

CAPACITY_FACTOR = 1.25
PREFERENCE = 0.5
"""Weight by which a router follows the preference of a token."""


@dataclass(frozen=True)
class Routing:
    """The options of the experts."""

    n_expert: Annotated[int, Meta(ge=2, description="experts of a block, at most d_model")] = DERIVED
    top_k: Annotated[int, Meta(ge=2, description="experts that a token is sent to")] = DERIVED
    dispatch: Annotated[Dispatch, Meta(description=DISPATCH_HELP)] = DERIVED
    capacity_factor: Annotated[
        float, Meta(gt=0, description="slots of an expert, as a multiple of seq_len·top_k/n_expert; for capacity only")
    ] = CAPACITY_FACTOR


@dataclass(frozen=True)
class Moe(Decoder, Routing):
    """Mixture of experts: forward only, forward and backward, or training with AdamW.

    `inference` returns the logits of every position. The loss is the mean cross-entropy of the next token, without a
    term that balances the load: the weights are drawn so that experts are chosen about equally often.
    """

    summary = "mixture-of-experts language model: logits, loss and gradients, or an AdamW step"
    accelerator = {
        "size": "mixtral-8x7b",
        "n_layer": 1,
        "dispatch": "grouped",
        "seq_len": 1024,
        "batch_size": 4,
        "impl": "fused",
    }
    cost_formula = (
        "flops = 2·B·T·(L·(2·d_model² + 2·d_model·d_kv + d_model·n_expert + 2·T·d_model) + d_model·vocab) "
        "+ 2·R·L·3·d_model·d_ff, 3 times that with backward; d_kv = d_model·n_kv_head/n_head\n"
        "R = B·T·top_k rows of experts; with --dispatch=capacity at most as many as there are slots\n"
        "bytes = weights, tokens and logits once; 2·weights with backward; 7·weights with AdamW's two moments\n"
        + PHASE_FORMULA
    )
    published = (Published({"size": "mixtral-8x7b"}, "the checkpoint's config and weights", parameters=46_702_792_704),)
    dimensions = (*Decoder.dimensions, "n_expert", "top_k")
    unrepeated = ""

    sizes = SIZES
    contexts = CONTEXTS
    size: Annotated[
        Size, Meta(description="size of the model; the eight options below and the experts override it")
    ] = "moe-small"

    def __post_init__(self) -> None:
        super().__post_init__()
        fill(self, {"dispatch": "capacity" if self.phase == "none" else "grouped"})
        if self.phase != "none" and self.dispatch == "capacity":
            raise ValueError(
                "dispatch=capacity needs phase=none: which tokens are dropped depends on the whole sequence"
            )
        if self.n_expert > self.d_model:
            raise ValueError(f"n_expert={self.n_expert} exceeds d_model={self.d_model}")
        if self.top_k > self.n_expert:
            raise ValueError(f"top_k={self.top_k} exceeds n_expert={self.n_expert}")
        if self.dispatch != "capacity" and self.capacity_factor != CAPACITY_FACTOR:
            raise ValueError(f"capacity_factor={self.capacity_factor:g} needs dispatch=capacity")

    @property
    def capacity(self) -> int:
        """Slots of an expert for each sequence; more than one for each token would stay empty."""
        return min(self.seq_len, math.ceil(self.capacity_factor * self.seq_len * self.top_k / self.n_expert))

    def own_size(self) -> str:
        """Return L layers, width d, H heads of queries / of keys and values, and E experts of a token / in all."""
        sizes, experts = f"{self.dimensions_title()}/{self.n_kv_head}", f"E={self.top_k}/{self.n_expert}"
        return f"MoE {sizes} d_ff={self.d_ff} {experts}"

    def options_title(self) -> str:
        """Return how tokens reach their experts."""
        return " grouped" if self.dispatch == "grouped" else f" capacity {self.capacity_factor:g}"

    def mlp(self) -> tuple[Layer, ...]:
        """Return the experts of each token."""
        return (Experts(self),)

    def collectives(self, mode: Mode, precision: str) -> tuple[Collective, ...]:
        """Return nothing: no implementation divides experts."""
        return ()

    def mlp_unread(self, precision: str, tokens: int) -> int:
        """Return the bytes of the experts that are more than the tokens can choose."""
        unused = self.n_expert - min(tokens * self.top_k, self.n_expert)
        shapes = (unused, self.d_model, 2 * self.d_ff), (unused, self.d_ff, self.d_model)
        return sum(kernel_bytes(shape, self.weight_type, precision) for shape in shapes)

    def weights(self, precision: str, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Draw weights as for GPT-2, random gains too, with which each token prefers some experts.

        Routers that are random alone leave near ties between experts, which rounding to 16 bits decides otherwise than
        float64: one token more or less changes the gradient of an expert visibly. So the first features of a token
        mark `top_k` random experts, as strongly as all its others together, and routers follow them. The scores of
        those that are chosen and of those that are not are then far apart, and the load of the experts is about equal.
        """
        weights = super().weights(precision, rng)
        preferred_VK = rng.random((self.vocab_size, self.n_expert)).argpartition(self.top_k - 1, axis=1)[
            :, : self.top_k
        ]
        marks_VE = weights["wte"][:, : self.n_expert]
        marks_VE[...] = 0
        np.put_along_axis(marks_VE, preferred_VK, 0.02 * self.d_model**0.5, axis=1)
        for layer in range(self.n_layer):
            expert_E = rng.permutation(self.n_expert)
            weights[f"h.{layer}.moe_router.kernel"][np.arange(self.n_expert), expert_E] += PREFERENCE
        return weights

    def small(self) -> Self:
        """Return at most two layers of at most eight experts, with dimensions that nearly all differ."""
        small = super().small()
        return replace(small, n_expert=min(self.n_expert, 8), top_k=min(self.top_k, 3))

    def slot_count(self, tokens: int) -> int:
        """Return the slots of all experts of a block, for whole sequences."""
        return self.n_expert * (tokens // self.seq_len) * self.capacity

    def counted_rows(self, tokens: int) -> int:
        """Return the rows of all experts of a block that count as work.

        Each token counts `top_k` times, also where it is dropped; slots beyond that stay empty and do not count.
        """
        rows = tokens * self.top_k
        return min(rows, self.slot_count(tokens)) if self.dispatch == "capacity" else rows


@dataclass(frozen=True)
class Experts(Layer):
    """A router, and the experts to which it sends each token."""

    problem: Moe

    def shapes(self) -> Shapes:
        """Return the shapes of the router and of the experts: [experts, inputs, outputs]."""
        p = self.problem
        return {
            **linear_shapes("moe_router", p.d_model, p.n_expert, bias=False),
            "moe_fc.kernel": (p.n_expert, p.d_model, 2 * p.d_ff),
            "moe_proj.kernel": (p.n_expert, p.d_ff, p.d_model),
        }

    def parts(self, at: RowWork) -> Mapping[str, Work]:
        """Return the work of the scopes; of the experts, that of the weights that are used."""
        p, tokens = self.problem, at.rows
        rows = p.slot_count(tokens) if p.dispatch == "capacity" else tokens * p.top_k
        product_flops = 2 * p.counted_rows(tokens) * p.d_model * p.d_ff
        used = min(tokens * p.top_k, p.n_expert)
        fc_bytes = at.kernel_bytes(used, p.d_model, 2 * p.d_ff)
        proj_bytes = at.kernel_bytes(used, p.d_ff, p.d_model)
        at_experts, at_tokens = rows * p.d_model, tokens * p.d_model
        return {
            "moe_router": replace(at, weight_type="full").linear(p.d_model, p.n_expert),
            "moe_dispatch": at.part(0, read=at_tokens, written=at_experts),
            "moe_fc": at.part(2 * product_flops, read=at_experts, written=2 * rows * p.d_ff, kernel_bytes=fc_bytes),
            "moe_swiglu": at.part(0, read=2 * rows * p.d_ff, written=rows * p.d_ff),
            "moe_proj": at.part(product_flops, read=rows * p.d_ff, written=at_experts, kernel_bytes=proj_bytes),
            "moe_combine": at.part(0, read=at_experts + at_tokens + tokens * p.top_k, written=at_tokens),
        }

    def forward(self, x: np.ndarray, weights: Weights) -> tuple[np.ndarray, Pullback]:
        """Apply the experts of each token."""
        return mixture(x, weights, self.problem)


@hookimpl
def define_problem() -> type[Problem]:
    """Return the mixture-of-experts problem."""
    return Moe
