"""Two classes: what normalisation costs beside a linear layer; built once with their options, called in each step."""

import torch
from torch import Tensor, nn


def inputs(batch=64, width=256):
    return torch.randn(batch, width), torch.randn(batch, width)


class Plain(nn.Module):
    """A linear layer."""

    def __init__(self, width=256):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x: Tensor, _: Tensor) -> Tensor:
        """Return the result of the layer."""
        return self.linear(x)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Return what training makes small."""
        return (self(x, y) - y).square().mean()


class Normalised(Plain):
    """The same after a layer norm."""

    def __init__(self, width=256):
        super().__init__(width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the result of both."""
        return super().forward(self.norm(x), y)
