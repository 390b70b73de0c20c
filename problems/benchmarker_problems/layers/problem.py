"""A problem that is a stack of layers: what follows from its layers, whatever they are."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from benchmarker import PRECISIONS, Cost, Data, HasParameters, Mode, Piece, Precision, UserError, Work
from benchmarker_problems.layers import Shapes, size_of
from benchmarker_problems.layers.model import Model
from benchmarker_problems.layers.reference import Gradients, Weights, cross_entropy
from benchmarker_problems.layers.work import added, times, update
from benchmarker_problems.quantization import weight_bytes
from benchmarker_problems.steps import ADAMW, AdamW, Sgd, is_statistic
from benchmarker_problems.steps.reference import Batch, steps


class Layered(HasParameters):
    """A model of layers: forward only, forward and backward, or training; a subclass may have these as options."""

    batch_size: int
    recompute: bool = False
    microbatches: int = 1

    input: ClassVar[str] = "tokens"
    """Array of a batch that enters the first layer."""
    output: ClassVar[str] = "logits"
    """Name of the result of `inference`."""

    @abstractmethod
    def model(self) -> Model:
        """Return the layers that a microbatch goes through."""

    @abstractmethod
    def data_bytes(self, mode: Mode, types: Precision) -> int:
        """Return the bytes of a batch that a step reads, and of the results that it writes other than gradients."""

    def loss_of(self, result: np.ndarray, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        """Return the loss, here the mean cross-entropy, and its gradient with respect to the result."""
        return cross_entropy(result, batch["targets"])

    @property
    def tokens(self) -> int | None:
        """Tokens of a step; None for a model of something else."""
        return None

    def models(self) -> Iterable[tuple[int, Model]]:
        """Return how often a microbatch goes through the model, and the model; one for each kind of pass."""
        return [(1, self.model())]

    def scopes(self, mode: Mode) -> Mapping[str, int]:
        """Return the scopes of the layers, those of a block once per block; then those of the loss and the update."""
        backward = mode != "inference"
        counts: dict[str, int] = {}
        for count, model in self.models():
            for name, times_in_pass in model.scopes(backward=backward).items():
                counts[name] = counts.get(name, 0) + self.microbatches * count * times_in_pass
        return counts | ({"optimizer": 1} if mode == "training" else {})

    def parts(self, mode: Mode, precision: str) -> Mapping[str, Work]:
        """Return the work of every scope of the model; the scopes of a block count for all blocks."""
        backward = mode != "inference"
        parts = added(
            times(self.microbatches * count, model.parts(precision, backward=backward))
            for count, model in self.models()
        )
        if mode == "training":
            parts["optimizer"] = update(self.copies(mode) * self.weight_bytes(precision))
        return parts

    def pieces(self) -> Sequence[Piece]:
        """Return what of a step other problems measure alone; nothing if it has passes of several kinds."""
        passes = list(self.models())
        if len(passes) > 1:
            return ()
        [(count, model)] = passes
        return [replace(piece, count=self.microbatches * count * piece.count) for piece in model.pieces()]

    def cost(self, mode: Mode, precision: str) -> Cost:
        """Count the work: the FLOPs of all parts, and weights, data and results once."""
        return Cost(
            flops=sum(work.flops for work in self.parts(mode, precision).values()),
            bytes=self.copies(mode) * self.weight_bytes(precision) + self.data_bytes(mode, PRECISIONS[precision]),
            samples=self.batch_size,
            tokens=self.tokens,
        )

    def copies(self, mode: Mode) -> int:
        """Return how often a step moves bytes of the size of the weights."""
        return {"inference": 1, "forward_backward": 2, "training": self.optimizer().WEIGHTS_MOVED}[mode]

    def weight_bytes(self, precision: str) -> int:
        """Return the bytes of the trained parameters as they are stored."""
        return weight_bytes(self._trained(), "full", precision)

    def refuse(self, mode: Mode) -> None:
        """Refuse in inference what concerns the backward pass."""
        if mode != "inference":
            return
        needed = "leave it out, or give --mode=forward_backward or training"
        if self.recompute:
            raise UserError(f"--recompute needs a backward pass; {needed}")
        if self.microbatches > 1:
            raise UserError(f"--microbatches={self.microbatches} needs gradients; {needed}")

    def weight_shapes(self) -> Shapes:
        """Return the shape of every weight by name, in order of use; a `kernel` is [inputs, outputs]."""
        return self.model().shapes()

    def parameter_count(self) -> int:
        """Return the number of weights; what two layers share counts once, and running statistics are no weights."""
        return size_of(self._trained())

    def _trained(self) -> Shapes:
        return {name: shape for name, shape in self.weight_shapes().items() if not is_statistic(name)}

    def recomputed_flops(self, *, scores: bool, kept: tuple[str, ...] = ()) -> int:
        """Return the FLOPs that a backward pass repeats in the blocks, but for products that are `kept`.

        `scores`: fused kernels repeat Q·Kᵀ.
        """
        flops = self.model().recomputed_flops(scores=scores, recompute=self.recompute, kept=kept)
        return self.microbatches * flops

    def optimizer(self) -> AdamW | Sgd:
        """Return the settings of the optimizer."""
        return ADAMW

    def forward(self, weights: Weights, batch: Batch) -> tuple[np.ndarray, Callable[[np.ndarray], Gradients]]:
        """Return the result in NumPy, and the function from its gradient to the gradient of each weight."""
        return self.model().forward(batch[self.input], {**weights, **batch})

    def reference(self, data: Data, mode: Mode) -> Iterator[Mapping[str, np.ndarray]]:
        """Yield the result; or the loss and the gradient of each weight; or the loss before each update."""
        return steps(data, mode, self.output, self.forward, self.loss_of, self.optimizer())
