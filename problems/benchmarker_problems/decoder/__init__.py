"""Decoders like Llama: pre-norm with RMSNorm, rotary positions and grouped-query attention; no biases.

A model of this kind is a folder with its published sizes and its MLP: the shapes, the work, and a function in each
framework. Everything else of it stands here.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from msgspec import Meta

from benchmarker import PRECISIONS, Cost, Mode, Work
from benchmarker_problems import attention
from benchmarker_problems.attention import IMPL_HELP, Impl
from benchmarker_problems.decoder.reference import forward
from benchmarker_problems.generation import (
    SEQ_LEN_HELP,
    CacheOption,
    DecodingOption,
    Depth,
    NewTokens,
    PhaseOption,
    PromptLen,
    cache_shape,
    fill_lengths,
    phase_title,
    small_lengths,
)
from benchmarker_problems.generation.language_model import LanguageModel
from benchmarker_problems.generation.work import Pass, attention_parts, cost, phase_scopes
from benchmarker_problems.layers import DERIVED, Shapes, fill, linear_shapes, norm_shapes, require_multiples
from benchmarker_problems.layers.reference import Gradients, Pullback, Weights
from benchmarker_problems.layers.work import Layers, times
from benchmarker_problems.parallel import divides_batch, small_widths
from benchmarker_problems.quantization import (
    WeightTypeOption,
    require_quantizable,
)
from benchmarker_problems.steps import (
    MICROBATCHES_HELP,
    RECOMPUTE_HELP,
    step_scopes,
    steps_title,
)

Sizes = Mapping[Any, Mapping[str, Any]]
"""The dimensions of each size by name."""


@dataclass(frozen=True)
class Decoder(LanguageModel):
    """A decoder: forward only, forward and backward, or training with AdamW.

    `inference` returns the logits of every position. The loss is the mean cross-entropy of the next token.
    """

    dimensions: ClassVar[tuple[str, ...]] = ("n_layer", "d_model", "n_head", "n_kv_head", "d_ff")
    """Options that a published size fixes; with others the title states them."""
    mlp_scopes: ClassVar[tuple[str, ...]]
    """Scopes of the MLP of a block."""

    sizes: ClassVar[Sizes]
    contexts: ClassVar[Mapping[Any, int]]
    divided_widths = ("n_kv_head", "d_model", "d_ff")

    size: str
    n_layer: Annotated[int, Meta(ge=1, description="transformer blocks")] = DERIVED
    d_model: Annotated[int, Meta(ge=1, description="width of the model, an even multiple of n_head")] = DERIVED
    n_head: Annotated[int, Meta(ge=1, description="query heads, a multiple of n_kv_head")] = DERIVED
    n_kv_head: Annotated[int, Meta(ge=1, description="heads of keys and values")] = DERIVED
    d_ff: Annotated[int, Meta(ge=1, description="width within the MLP, or within each expert")] = DERIVED
    vocab_size: Annotated[int, Meta(ge=2, description="number of distinct tokens")] = DERIVED
    rope_theta: Annotated[float, Meta(gt=0, description="base of the rotary angles")] = DERIVED
    tied_head: Annotated[bool, Meta(description="the output head uses the weights of the embedding")] = DERIVED
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
    cache: CacheOption = "fit"

    def __post_init__(self) -> None:
        fill(self, self.sizes[self.size])
        fill_lengths(self, self.contexts.get(self.size))
        require_multiples(self, n_head="n_kv_head", batch_size="microbatches")
        require_quantizable(self, "d_model", "d_ff")
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
    def cache_shape(self) -> tuple[int, int, int, int]:
        """Blocks, and the shape of the keys, and of the values, in each."""
        return cache_shape(self, self.n_kv_head)

    @abstractmethod
    def own_size(self) -> str:
        """Return what a title states of a size that is not published."""

    def options_title(self) -> str:
        """Return what a title states of further options."""
        return ""

    @abstractmethod
    def mlp_shapes(self, name: str) -> Shapes:
        """Return the shapes of the MLP's weights of the block `name`."""

    @abstractmethod
    def mlp_flops(self, tokens: int) -> int:
        """Return the FLOPs of the MLP of a block for so many tokens in the forward pass."""

    @abstractmethod
    def mlp_parts(self, layers: Layers) -> Mapping[str, Work]:
        """Return the work of the scopes of the MLP of a block."""

    @abstractmethod
    def mlp_reference(self, x_BTC: np.ndarray, weights: Weights) -> tuple[np.ndarray, Pullback]:
        """Apply the MLP of a block in NumPy."""

    def mlp_unread(self, precision: str, tokens: int) -> int:
        """Return the bytes of the MLP's weights of a block that so many tokens do not use."""
        return 0

    def unrepeated_flops(self) -> int:
        """Return the FLOPs of the product that ends a block and that no gradient needs again."""
        return 0

    def title(self, mode: Mode) -> str:
        """Return the size (L layers, width d, H heads unless it is published), the mode, B and T."""
        published = self.sizes[self.size]
        same = all(getattr(self, name) == published[name] for name in self.dimensions)
        vocabulary = "" if self.vocab_size == published["vocab_size"] else f" V={self.vocab_size}"
        head = "" if self.tied_head == published["tied_head"] else f" {'tied' if self.tied_head else 'untied'}"
        impl = "" if self.impl == type(self).impl else f" {self.impl}"
        steps = steps_title(recompute=self.recompute, microbatches=self.microbatches)
        what = f"{mode.replace('forward_backward', 'fwd+bwd')}, B={self.batch_size} T={self.seq_len}"
        what = what if self.phase == "none" else phase_title(self)
        size = self.size if same else self.own_size()
        return f"{size}{vocabulary}{head} {what}{self.options_title()}{impl}{steps}"

    def scopes(self, mode: Mode) -> Mapping[str, int]:
        """Return the parts of a block, which run once per layer, and those before and after the blocks."""
        block = ("norm_1", "attn_qkv", "rope", *attention.scopes(self.impl), "attn_proj", "norm_2", *self.mlp_scopes)
        scopes = {"embed": 1, **dict.fromkeys(block, self.n_layer), "norm_f": 1, "lm_head": 1}
        return step_scopes(phase_scopes(self, scopes), mode, self.microbatches)

    def cost(self, mode: Mode, precision: str) -> Cost:
        """Count the work.

        Weights that no token selects are not read: rows of an embedding that is not also the output head, and experts
        that are more than the tokens can choose.
        """
        d_kv = self.n_kv_head * self.head_dim

        def block_flops(tokens: int) -> int:
            return 4 * tokens * (self.d_model**2 + self.d_model * d_kv) + self.mlp_flops(tokens)

        def unread(tokens: int) -> int:
            rows = 0 if self.tied_head else self.vocab_size - min(tokens, self.vocab_size)
            of_rows = rows * self.d_model * PRECISIONS[precision].parameter_bytes
            return of_rows + self.n_layer * self.mlp_unread(precision, tokens)

        weight_bytes = self.weight_bytes(precision)
        return cost(self, mode, precision, weight_bytes=weight_bytes, d_kv=d_kv, block_flops=block_flops, unread=unread)

    def pass_parts(self, precision: str, each: Pass, backward: bool) -> Mapping[str, Work]:
        """Return the work of every scope in a pass of a microbatch, but that of the optimizer."""
        batch_size = self.batch_size // self.microbatches
        layers = Layers(batch_size * each.tokens, precision, backward, self.weight_type)
        head = Layers(batch_size * each.logits, precision, backward, "full" if self.tied_head else self.weight_type)
        rotated = (self.n_head + self.n_kv_head) * self.head_dim
        block = {
            "norm_1": layers.norm(self.d_model, bias=False),
            "attn_qkv": layers.linear(self.d_model, sum(self.heads) * self.head_dim),
            "rope": layers.pointwise(rotated, rotated),
            **attention_parts(layers, each, self.n_head, self.n_kv_head, self.head_dim, self.impl),
            "attn_proj": layers.linear(self.d_model, self.d_model, residual=True),
            "norm_2": layers.norm(self.d_model, bias=False),
            **self.mlp_parts(layers),
        }
        return {
            "embed": layers.pointwise(0, self.d_model, weights=layers.rows * self.d_model),
            **times(self.n_layer, block),
            "norm_f": head.norm(self.d_model, bias=False),
            "lm_head": head.linear(self.d_model, self.vocab_size),
            "loss": head.pointwise(self.vocab_size, 0),
            "next_token": head.pointwise(self.vocab_size, 0),
        }

    def forward(
        self, weights: Weights, tokens_BT: np.ndarray, impl: Impl = "einsum"
    ) -> tuple[np.ndarray, Callable[[np.ndarray], Gradients]]:
        """Return the logits of every position in NumPy, and the function from their gradient to those of weights."""
        return forward(weights, tokens_BT, self, impl)

    def recomputed_flops(self, *, scores: bool) -> int:
        """Return the FLOPs that a backward pass repeats: Q·Kᵀ if `scores`, as fused kernels do, and blocks if asked."""
        flops = (
            self.n_layer * attention.product_flops(self.batch_size, self.n_head, self.seq_len, self.head_dim)
            if scores
            else 0
        )
        if not self.recompute:
            return flops
        outside = (
            2 * self.batch_size * self.seq_len * self.d_model * self.vocab_size + self.n_layer * self.unrepeated_flops()
        )
        return flops + self.cost("inference", "fp32").flops - outside

    def fused_widths(self) -> dict[str, list[int]]:
        """Return the widths of the results of a layer that computes several: of queries, keys and values."""
        return {"attn_qkv": [heads * self.head_dim for heads in self.heads]}

    def weight_shapes(self) -> Shapes:
        """Return the shape of every weight by name, in order of use; a `kernel` is [inputs, outputs]."""
        shapes: Shapes = {"wte": (self.vocab_size, self.d_model)}
        for layer in range(self.n_layer):
            h = f"h.{layer}"
            shapes |= norm_shapes(f"{h}.norm_1", self.d_model, bias=False)
            shapes |= linear_shapes(f"{h}.attn_qkv", self.d_model, sum(self.heads) * self.head_dim, bias=False)
            shapes |= linear_shapes(f"{h}.attn_proj", self.d_model, self.d_model, bias=False)
            shapes |= norm_shapes(f"{h}.norm_2", self.d_model, bias=False)
            shapes |= self.mlp_shapes(h)
        shapes |= norm_shapes("norm_f", self.d_model, bias=False)
        return (
            shapes if self.tied_head else shapes | linear_shapes("lm_head", self.d_model, self.vocab_size, bias=False)
        )

    def small(self) -> Self:
        """Return at most two layers with dimensions that all differ, and groups of queries if there are any.

        What several devices divide, the batch or the widths, has something for each of them.
        """
        lengths, group = small_lengths(self), 1 if self.n_kv_head == self.n_head else 2
        n_kv_head, d_ff = small_widths(4 // group, 16, 160, self.parallel, self.devices)
        return replace(
            self,
            n_layer=min(self.n_layer, 2),
            d_model=group * n_kv_head * 16,
            n_head=group * n_kv_head,
            n_kv_head=n_kv_head,
            d_ff=d_ff,
            vocab_size=97,
            batch_size=3 * self.microbatches * (self.devices if divides_batch(self.parallel) else 1),
            **lengths,
        )
