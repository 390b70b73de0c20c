"""LSTM: a stack of long short-term memory layers over whole sequences (Hochreiter and Schmidhuber, 1997; Gers, 2000).

Shapes: T sequence, B batch, I size of an input, H hidden size, E = 4·H the gates i, f, g, o one after the other.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Self

import numpy as np
from msgspec import Meta

from benchmarker import FLOATS, PRECISIONS, Arrays, Cost, Data, HasParameters, Mode, Precision, Problem, hookimpl
from benchmarker_problems.layers.data import normal
from benchmarker_problems.lstm import reference

PRECISIONS_DONE: Mapping[Mode, tuple[str, ...]] = dict.fromkeys(("inference", "forward_backward"), FLOATS)


@dataclass(frozen=True)
class Lstm(HasParameters):
    """The outputs of the last layer at every position; `forward_backward` adds all gradients for a given one of them.

    Sequences are stored with their positions first, [T, B, I]. The state before the first position is zero. Each gate
    has one bias: PyTorch's second one is zero.
    """

    summary = "stack of LSTM layers over sequences [T,B,I]"
    accelerator = {"hidden_size": 1024, "input_size": 1024, "seq_len": 128, "batch_size": 64}
    cost_formula = (
        "flops = 2·T·B·4·H·(I + H) in each layer, where I = H after the first; three times that with backward\n"
        "bytes = weights, inputs and outputs once, with backward also their gradients"
    )

    layers: Annotated[int, Meta(ge=1, description="layers, each on the outputs of the one before")] = 2
    hidden_size: Annotated[int, Meta(ge=1, description="size of a layer's state and output")] = 256
    input_size: Annotated[int, Meta(ge=1, description="size of an input of the first layer")] = 256
    seq_len: Annotated[int, Meta(ge=1, description="sequence length")] = 64
    batch_size: Annotated[int, Meta(ge=1, description="sequences per step")] = 16

    def title(self, mode: Mode) -> str:
        """Return the sizes: `LSTM L=2 H=256, B=16 T=64`."""
        inputs = f" I={self.input_size}" * (self.input_size != self.hidden_size)
        backward = " fwd+bwd" * (mode == "forward_backward")
        return f"LSTM L={self.layers} H={self.hidden_size}{inputs}, B={self.batch_size} T={self.seq_len}{backward}"

    def numerics(self, mode: Mode, precision: str) -> Precision:
        """Return the types with a larger bound in fp32: cuDNN approximates the functions of the gates.

        On an H200 (cuDNN 9.19) its results are off by up to 65 unit roundoffs and its gradients by 108, of states of 14
        numbers; without cuDNN by 3. In tf32 they are off by 2000 or more.
        """
        types = PRECISIONS[precision]
        return replace(types, stated_bound=256 * types.roundoff) if precision == "fp32" else types

    def scopes(self, mode: Mode) -> Mapping[str, int]:
        """Return the stack, the only part: PyTorch computes it in one call."""
        return {"lstm": 1}

    def cost(self, mode: Mode, precision: str) -> Cost:
        """Count the products of inputs and of states with their weights; the backward pass has two for each."""
        item = PRECISIONS[precision].parameter_bytes
        tokens = self.seq_len * self.batch_size
        products = sum(int(np.prod(shape)) for shape in self.weight_shapes().values() if len(shape) == 2)
        flops = 2 * tokens * products
        moved = (self.parameter_count() + tokens * (self.input_size + self.hidden_size)) * item
        backward = mode == "forward_backward"
        return Cost(
            flops=3 * flops if backward else flops,
            bytes=2 * moved if backward else moved,
            samples=self.batch_size,
            tokens=tokens,
        )

    def data(self, precision: str, rng: np.random.Generator, batches: int) -> Data:
        """Draw weights uniformly from ±1/√H, as PyTorch does, and normally distributed inputs and gradients."""
        dtype = np.float64 if precision == "fp64" else np.float32
        limit = self.hidden_size**-0.5
        weights = {
            name: rng.uniform(-limit, limit, shape).astype(np.float32).astype(dtype)
            for name, shape in self.weight_shapes().items()
        }
        places = self.seq_len, self.batch_size
        shapes = {"x": (*places, self.input_size), "d_out": (*places, self.hidden_size)}
        return Data(weights, normal(shapes, precision, rng, batches))

    def small(self) -> Self:
        """Return at most two layers with dimensions that all differ."""
        return replace(
            self, layers=min(self.layers, 2), hidden_size=14, input_size=10, seq_len=min(self.seq_len, 9), batch_size=3
        )

    def step(self, weights: Arrays, batch: Arrays, mode: Mode) -> Arrays:
        """Return the outputs, and in `forward_backward` also the gradients of the inputs and of every weight."""
        out_TBH, pullback = reference.forward(weights, batch["x"], self.layers)
        if mode == "inference":
            return {"out": out_TBH}
        d_x_TBI, gradients = pullback(batch["d_out"])
        return {"out": out_TBH, "d_x": d_x_TBI, **{f"d_{name}": gradient for name, gradient in gradients.items()}}

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every weight by name, in order of use."""
        shapes: dict[str, tuple[int, ...]] = {}
        for layer in range(self.layers):
            inputs = self.hidden_size if layer else self.input_size
            shapes |= {
                f"{layer}.w_x": (inputs, 4 * self.hidden_size),
                f"{layer}.w_h": (self.hidden_size, 4 * self.hidden_size),
                f"{layer}.b": (4 * self.hidden_size,),
            }
        return shapes

    def parameter_count(self) -> int:
        """Return the number of weights, with one bias for each gate."""
        return sum(int(np.prod(shape)) for shape in self.weight_shapes().values())


@hookimpl
def define_problem() -> type[Problem]:
    """Return the LSTM problem."""
    return Lstm
