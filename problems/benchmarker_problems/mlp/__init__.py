"""A multilayer perceptron: a chain of square linear layers without bias, each followed by tanh.

Shapes: B batch, C width.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Self

import numpy as np
from msgspec import Meta

from benchmarker import FLOATS, Arrays, Data, Mode, Precision, Problem, hookimpl
from benchmarker_problems.layers.layer import Linear, Pointwise, chain
from benchmarker_problems.layers.model import Model, Stage
from benchmarker_problems.layers.problem import Layered
from benchmarker_problems.layers.reference import tanh

PRECISIONS_DONE: Mapping[Mode, tuple[str, ...]] = dict.fromkeys(("inference", "forward_backward"), FLOATS)


@dataclass(frozen=True)
class Mlp(Layered):
    """Layers one after the other; `forward_backward` adds the gradients of the inputs and of all weights.

    With few rows, all that counts is how fast the weights are read, matrix by matrix.
    """

    summary = "multilayer perceptron: a chain of linear layers with tanh"
    accelerator = {"batch_size": 8192, "width": 8192}
    cost_formula = (
        "flops = 2·B·width²·layers, three times that with backward\n"
        "bytes = weights, inputs and outputs once, with backward also their gradients"
    )

    batch_size: Annotated[int, Meta(ge=1, description="rows of x, samples per step")] = 64
    width: Annotated[int, Meta(ge=1, description="inputs and outputs of each layer")] = 1024
    layers: Annotated[int, Meta(ge=1, description="linear layers")] = 8
    by_output: Annotated[bool, Meta(description="weights are stored as [outputs, inputs]")] = False

    @property
    def names(self) -> list[str]:
        """Names of the weights, in the order of the layers."""
        return list(self.weight_shapes())

    def title(self, mode: Mode) -> str:
        """Return layers, width and batch: `MLP 8×1024, B=64`."""
        by_output = " by output" * self.by_output
        backward = " fwd+bwd" * (mode == "forward_backward")
        return f"MLP {self.layers}×{self.width}, B={self.batch_size}{by_output}{backward}"

    def model(self) -> Model:
        """Return the layers, each with its tanh in the same scope."""
        layer = Linear("layer", self.width, self.width, bias=False), Pointwise(None, tanh)
        return Model((Stage(self.batch_size, layer, self.layers),))

    def data_bytes(self, mode: Mode, types: Precision) -> int:
        """Return the bytes of inputs and outputs, with backward also of their gradients."""
        return (1 if mode == "inference" else 2) * 2 * self.batch_size * self.width * types.parameter_bytes

    def data(self, precision: str, rng: np.random.Generator, batches: int) -> Data:
        """Draw from a normal distribution: weights [inputs, outputs] of variance 1 / width, all else of variance 1.

        With these weights, a layer keeps the variance of small inputs (Glorot and Bengio, "Understanding the difficulty
        of training deep feedforward neural networks", AISTATS 2010).
        """
        dtype = np.float64 if precision == "fp64" else np.float32

        def draw(rows: int) -> np.ndarray:
            return rng.standard_normal((rows, self.width), dtype)

        scale = dtype(np.sqrt(1 / self.width))
        weights = {name: draw(self.width) * scale for name in self.names}
        rows = tuple({"x": draw(self.batch_size), "d_y": draw(self.batch_size)} for _ in range(batches))
        return Data(weights, rows)

    def small(self) -> Self:
        """Return a chain of at most three layers, of at most 48 inputs and 64 rows."""
        return replace(self, batch_size=min(self.batch_size, 64), width=min(self.width, 48), layers=min(self.layers, 3))

    def reference(self, data: Data, mode: Mode) -> Iterator[Arrays]:
        """Yield the outputs of `step`: there is no loss, but the gradient of the outputs is given."""
        return Problem.reference(self, data, mode)

    def step(self, weights: Arrays, batch: Arrays, mode: Mode) -> Arrays:
        """Return the outputs, and in `forward_backward` also the gradients of the inputs and of all weights."""
        y_BC, pullback = chain(self.model().stages, batch["x"], weights)
        if mode == "inference":
            return {"y": y_BC}
        d_x_BC, gradients = pullback(batch["d_y"])
        return {"y": y_BC, "d_x": d_x_BC, **{f"d_{name}": gradient for name, gradient in gradients.items()}}


@hookimpl
def define_problem() -> type[Problem]:
    """Return the MLP problem."""
    return Mlp
