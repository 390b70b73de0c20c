"""Models as stacks of layers: shapes of weights, work by scope, and the result in NumPy follow from them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from benchmarker import Piece, Work
from benchmarker_problems.layers import Shapes
from benchmarker_problems.layers.layer import (
    SCORES,
    Layer,
    Linear,
    Norm,
    Pointwise,
    Residual,
    add_to,
    chain,
    parts_of,
    shapes_of,
    united,
)
from benchmarker_problems.layers.reference import (
    Activation,
    Gradients,
    Pullback,
    Weights,
    select,
    swiglu,
)
from benchmarker_problems.layers.work import RowWork, added, times
from benchmarker_problems.quantization import WeightType


def attention_and_mlp(
    d_model: int, attention: tuple[Layer, ...], d_ff: int, gelu: Activation
) -> tuple[tuple[Layer, ...], tuple[Layer, ...]]:
    """Return attention between two products, and an MLP with GELU; all products have biases."""
    return (
        (
            Linear("attn_qkv", d_model, 3 * d_model),
            *attention,
            Linear("attn_proj", d_model, d_model, residual=True),
        ),
        (
            Linear("mlp_fc", d_model, d_ff),
            Pointwise("mlp_gelu", gelu, d_ff, d_ff),
            Linear("mlp_proj", d_ff, d_model, residual=True),
        ),
    )


def transformer_block(
    d_model: int, attention: tuple[Layer, ...], d_ff: int, gelu: Activation, eps: float, *, norm_after: bool = False
) -> tuple[Layer, ...]:
    """Return a block of GPT-2's kind: attention and MLP, with LayerNorm before each, or after adding the residual."""
    branches = attention_and_mlp(d_model, attention, d_ff, gelu)
    return tuple(
        Residual(Norm(name, d_model, eps), branch, norm_after)
        for name, branch in zip(("ln_1", "ln_2"), branches, strict=True)
    )


def swiglu_mlp(d_model: int, d_ff: int) -> tuple[Layer, ...]:
    """Return two products, the first for the gate and the other factor, with SwiGLU between them; no biases."""
    return (
        Linear("mlp_fc", d_model, 2 * d_ff, bias=False),
        Pointwise("mlp_swiglu", swiglu, 2 * d_ff, d_ff),
        Linear("mlp_proj", d_ff, d_model, bias=False, residual=True),
    )


@dataclass(frozen=True)
class Stage:
    """Layers that act on so many rows one after the other; as blocks they do so `blocks` times, each with own weights.

    The weights of blocks are named `h.0`, `h.1`, and so on, but for those that they have in common (`shared`). A block
    that is computed again in the backward pass does not repeat `unrepeated`: the product that ends it, if no gradient
    needs its result.
    """

    rows: int
    layers: tuple[Layer, ...]
    blocks: int | None = None
    unrepeated: str = ""
    shared: tuple[str, ...] = ()

    def shapes(self) -> Shapes:
        """Return the shape of every weight by name, in order of use."""
        shapes = shapes_of(self.layers)
        if self.blocks is None:
            return shapes
        return {f"h.{block}.{name}": shape for block in range(self.blocks) for name, shape in shapes.items()}

    def forward(self, x: np.ndarray, weights: Weights) -> tuple[np.ndarray, Pullback]:
        """Return the result of all layers.

        Of blocks only their inputs are kept, so that inference takes little memory: the pullback computes each again.
        """
        if self.blocks is None:
            return chain(self.layers, x, weights)
        shared = {name: weights[name] for name in self.shared}
        weights_of = [select(weights, f"h.{block}") | shared for block in range(self.blocks)]
        inputs = []
        for of_block in weights_of:
            inputs.append(x)
            x = chain(self.layers, x, of_block)[0]

        def pullback(d_x: np.ndarray) -> tuple[np.ndarray, Gradients]:
            total: Gradients = {}
            for block, of_block in reversed(list(enumerate(weights_of))):
                _, block_pullback = chain(self.layers, inputs[block], of_block)
                d_x, gradients = block_pullback(d_x)
                names = {name: name if name in self.shared else f"h.{block}.{name}" for name in gradients}
                add_to(total, {names[name]: gradient for name, gradient in gradients.items()})
            return d_x, total

        return x, pullback


@dataclass(frozen=True)
class Model:
    """What a microbatch goes through, and in a backward pass the `loss` too.

    Kernels of linear layers are stored as `weight_type`.
    """

    stages: tuple[Stage, ...]
    loss: Stage = Stage(0, ())
    weight_type: WeightType = "full"

    def shapes(self) -> Shapes:
        """Return the shape of every weight by name, in order of use; a `kernel` is [inputs, outputs]."""
        return united(stage.shapes() for stage in self.stages)

    def scopes(self, *, backward: bool) -> dict[str, int]:
        """Return how often each scope runs, in order."""
        counts: dict[str, int] = {}
        for count, parts in self._parts("fp32", backward):
            for name in parts:
                counts[name] = counts.get(name, 0) + count
        return counts

    def parts(self, precision: str, *, backward: bool) -> dict[str, Work]:
        """Return the work of every scope; those of a block count for all blocks."""
        return added(times(count, parts) for count, parts in self._parts(precision, backward))

    def _parts(self, precision: str, backward: bool) -> Iterator[tuple[int, Mapping[str, Work]]]:
        for stage in (*self.stages, self.loss) if backward else self.stages:
            at = RowWork(stage.rows, precision, backward, self.weight_type)
            yield 1 if stage.blocks is None else stage.blocks, parts_of(stage.layers, at)

    def pieces(self) -> list[Piece]:
        """Return what of the layers other problems measure alone; they have no quantised weights."""
        return [
            replace(piece, count=stage.blocks or 1)
            for stage in (self.stages if self.weight_type == "full" else ())
            for layer in stage.layers
            for piece in layer.pieces(stage.rows)
        ]

    def recomputed_flops(self, *, scores: bool, recompute: bool, kept: tuple[str, ...] = ()) -> int:
        """Return the FLOPs that a backward pass repeats in blocks: all but `kept`, and Q·Kᵀ again if `scores`."""
        flops = 0
        for stage in self.stages:
            if stage.blocks is None:
                continue
            parts = parts_of(stage.layers, RowWork(stage.rows, "fp32", backward=False))
            products = sum(work.flops for name, work in parts.items() if name in SCORES)
            again = sum(work.flops for name, work in parts.items() if name not in (*kept, stage.unrepeated))
            flops += stage.blocks * (products // 2 * scores + again * recompute)
        return flops

    def forward(self, x: np.ndarray, weights: Weights) -> tuple[np.ndarray, Callable[[np.ndarray], Gradients]]:
        """Return the result in NumPy, in the type of the weights, and the function from its gradient to theirs."""
        y, pullback = chain(self.stages, x, weights)
        return y, lambda d_y: pullback(d_y)[1]
