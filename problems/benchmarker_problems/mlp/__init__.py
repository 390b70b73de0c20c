"""A multilayer perceptron: a chain of square linear layers without bias, each followed by tanh.

Shapes: B batch, C width.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Self

import numpy as np
from msgspec import Meta

from benchmarker import FLOATS, PRECISIONS, Arrays, Cost, Data, Mode, Problem, Work, hookimpl

PRECISIONS_DONE: Mapping[Mode, tuple[str, ...]] = dict.fromkeys(("inference", "forward_backward"), FLOATS)


@dataclass(frozen=True)
class Mlp(Problem):
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
        return [f"w_{number}" for number in range(self.layers)]

    def title(self, mode: Mode) -> str:
        """Return layers, width and batch: `MLP 8×1024, B=64`."""
        by_output = " by output" * self.by_output
        backward = " fwd+bwd" * (mode == "forward_backward")
        return f"MLP {self.layers}×{self.width}, B={self.batch_size}{by_output}{backward}"

    def scopes(self, mode: Mode) -> Mapping[str, int]:
        """Return the layer, with its tanh."""
        return {"layer": self.layers}

    def cost(self, mode: Mode, precision: str) -> Cost:
        """Count the products; in the backward pass, each layer has two of the same FLOPs."""
        item = PRECISIONS[precision].parameter_bytes
        passes, copies = (1, 1) if mode == "inference" else (3, 2)
        moved = self.layers * self.width**2 + 2 * self.batch_size * self.width
        return Cost(passes * 2 * self.batch_size * self.width**2 * self.layers, copies * moved * item, self.batch_size)

    def parts(self, mode: Mode, precision: str) -> Mapping[str, Work]:
        """Return the layers; the backward pass of each reads inputs, weights and the gradient of its outputs."""
        item = PRECISIONS[precision].parameter_bytes
        weight_bytes, rows_bytes = self.width**2 * item, self.batch_size * self.width * item
        work = Work(2 * self.batch_size * self.width**2, weight_bytes + 2 * rows_bytes, weight_bytes)
        if mode == "forward_backward":
            work += Work(2 * work.flops, 2 * weight_bytes + 3 * rows_bytes, 2 * weight_bytes)
        return {"layer": work * self.layers}

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

    def step(self, weights: Arrays, batch: Arrays, mode: Mode) -> Arrays:
        """Return the outputs, and in `forward_backward` also the gradients of the inputs and of all weights."""
        inputs, y_BC = {}, batch["x"]
        for name in self.names:
            if mode == "forward_backward":
                inputs[name] = y_BC
            y_BC = np.tanh(y_BC @ weights[name])
        outputs = {"y": y_BC}
        if mode == "forward_backward":
            gradient_BC = batch["d_y"]
            for name in reversed(self.names):
                gradient_BC = gradient_BC * (1 - y_BC**2)
                y_BC = inputs[name]
                outputs[f"d_{name}"] = y_BC.T @ gradient_BC
                gradient_BC = gradient_BC @ weights[name].T
            outputs["d_x"] = gradient_BC
        return outputs


@hookimpl
def define_problem() -> type[Problem]:
    """Return the MLP problem."""
    return Mlp
