"""A model of transformer blocks in published sizes: the options that all of them share, their title and small size."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from msgspec import Meta

from benchmarker import Mode
from benchmarker_problems.layers import Impl, ImplOption, fill, require_multiples
from benchmarker_problems.layers.problem import Layered
from benchmarker_problems.layers.reference import Gradients, Weights
from benchmarker_problems.steps.reference import Batch

Sizes = Mapping[Any, Mapping[str, Any]]
"""The dimensions of each size by name."""

Blocks = Annotated[int, Meta(ge=1, description="transformer blocks")]
Width = Annotated[int, Meta(ge=1, description="width of the model, a multiple of n_head")]
Heads = Annotated[int, Meta(ge=1, description="attention heads")]
InnerWidth = Annotated[int, Meta(ge=1, description="width within the MLP; 4·d_model if omitted")]


@dataclass(frozen=True, kw_only=True)
class Transformer(Layered):
    """A transformer; a subclass has the options of its size and its batch."""

    sizes: ClassVar[Sizes]
    dimensions: ClassVar[tuple[str, ...]] = ("n_layer", "d_model", "n_head")
    """Options that a published size fixes; with others the title states them."""
    multiples: ClassVar[Mapping[str, str]] = {"d_model": "n_head", "batch_size": "microbatches"}
    """Options that are multiples of another."""

    size: str
    n_layer: int
    d_model: int
    n_head: int
    d_ff: int
    batch_size: int
    impl: ImplOption = "matmul"
    recompute: Annotated[
        bool, Meta(description="activation checkpointing: recompute each block in the backward pass")
    ] = False
    microbatches: Annotated[
        int,
        Meta(
            ge=1,
            description="gradient accumulation: parts into which the batch is split; batch_size is a multiple of it",
        ),
    ] = 1

    def __post_init__(self) -> None:
        fill(self, self.sizes[self.size])
        fill(self, {"d_ff": 4 * self.d_model})
        require_multiples(self, **self.multiples)

    @abstractmethod
    def size_title(self) -> str:
        """Return what a title states of the model: its size, and what differs from it."""

    @property
    def head_dim(self) -> int:
        """Width of one head."""
        return self.d_model // self.n_head

    def is_published(self) -> bool:
        """Whether the dimensions are those of the size."""
        published = self.sizes[self.size]
        return all(getattr(self, name) == published[name] for name in self.dimensions)

    def dimensions_title(self) -> str:
        """Return L layers, width d and H heads."""
        return f"L={self.n_layer} d={self.d_model} H={self.n_head}"

    def inner_title(self) -> str:
        """Return the width of the MLP, unless it is as usual."""
        return "" if self.d_ff == 4 * self.d_model else f" d_ff={self.d_ff}"

    def batch_title(self, mode: Mode) -> str:
        """Return the mode, and the sizes of the batch."""
        return f"{mode.replace('forward_backward', 'fwd+bwd')}, B={self.batch_size}"

    def title(self, mode: Mode) -> str:
        """Return the size (its dimensions unless it is published), the mode and the batch: `GPT-2 small training, B=1`.

        What is rarely changed follows if it differs from its default.
        """
        impl = "" if self.impl == type(self).impl else f" {self.impl}"
        parts = "" if self.microbatches == 1 else f" in {self.microbatches} parts"
        return f"{self.size_title()} {self.batch_title(mode)}{impl}{' recompute' * self.recompute}{parts}"

    def small(self) -> Self:
        """Return at most two layers with dimensions that all differ; every fused kernel supports a head size of 16."""
        return replace(self, n_layer=min(self.n_layer, 2), d_model=48, n_head=3, d_ff=160)

    def forward(
        self, weights: Weights, batch: Batch, impl: Impl = "einsum"
    ) -> tuple[np.ndarray, Callable[[np.ndarray], Gradients]]:
        """Return the result in NumPy, and the function from its gradient to the gradient of each weight."""
        return Layered.forward(self._with(impl=impl), weights, batch)

    def _with(self, **options: Any) -> Self:
        return replace(self, **options)
