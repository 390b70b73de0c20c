"""What a step of a model does in each mode: the output; the loss and its gradients; or an update of the weights.

The modules beside this one do it in each framework, and for the reference.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarker import FLOATS, MIXED, Mode

DONE: Mapping[Mode, tuple[str, ...]] = {
    "inference": (*FLOATS, *MIXED),
    "forward_backward": (*FLOATS, *MIXED),
    "training": tuple(name for name in (*FLOATS, *MIXED) if name != "fp16"),
}
"""Precisions of a model by mode. Pure fp16 cannot represent AdamW's ε and the squared gradients, so it cannot train."""


@dataclass(frozen=True)
class AdamW:
    """Settings of AdamW (Loshchilov and Hutter, 2019). Weights with one axis (gains and biases) do not decay."""

    learning_rate: float = 1e-3
    beta_1: float = 0.9
    beta_2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 0.1

    WEIGHTS_MOVED = 7
    """How often training moves bytes of the size of the weights: an update reads and writes the weights and two
    moments, and reads the gradients."""


ADAMW = AdamW()


@dataclass(frozen=True)
class Sgd:
    """Settings of stochastic gradient descent with momentum (Sutskever et al., 2013). All weights decay."""

    learning_rate: float
    momentum: float = 0.9
    weight_decay: float = 1e-4

    WEIGHTS_MOVED = 5
    """As of AdamW, with one moment."""


def is_statistic(name: str) -> bool:
    """Whether an array of a model is a running statistic: no optimizer changes it, but the forward pass does."""
    return name.endswith((".mean", ".var"))


def step_scopes(scopes: Mapping[str, int], mode: Mode, microbatches: int) -> dict[str, int]:
    """Return how often the scopes of a step run: those of the model and `loss` in each microbatch, `optimizer` once."""
    loss = {} if mode == "inference" else {"loss": 1}
    optimizer = {"optimizer": 1} if mode == "training" else {}
    return {name: microbatches * count for name, count in {**scopes, **loss}.items()} | optimizer


def fixed_loss_scale(terms: int) -> float:
    """Return the factor of a loss that is a mean over `terms` for `forward_backward` with fp16 gradients.

    The result is divided by it afterwards. It is a power of two of about 16 times the terms. Without it, the factor
    1/terms of the mean would make the gradient of a single term too small for fp16.
    """
    return 2.0 ** (4 + (terms - 1).bit_length())
