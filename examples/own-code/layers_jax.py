"""Two modules of flax.nnx: how wide a hidden layer pays; `rngs` is made from the seed of the case."""

import jax
from flax import nnx
from jax import Array


def inputs(batch=64, width=256, seed=0):
    return jax.random.normal(jax.random.key(seed), (batch, width))


class Narrow(nnx.Module):
    """A hidden layer as wide as its input."""

    def __init__(self, width=256, *, rngs):
        self.one = nnx.Linear(width, width, rngs=rngs)
        self.two = nnx.Linear(width, width, rngs=rngs)

    def __call__(self, x: Array) -> Array:
        """Return the sum of the input and the result of both layers."""
        return x + self.two(jax.nn.gelu(self.one(x)))


class Wide(Narrow):
    """A hidden layer four times as wide."""

    def __init__(self, width=256, *, rngs):
        self.one = nnx.Linear(width, 4 * width, rngs=rngs)
        self.two = nnx.Linear(4 * width, width, rngs=rngs)
