"""Successive steps of a model in NumPy, in the type of its weights: the reference of every check."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from benchmarker import Data, Mode
from benchmarker_problems.steps import ADAMW, AdamW, Sgd

Weights = Mapping[str, np.ndarray]
Gradients = dict[str, np.ndarray]
Batch = Mapping[str, np.ndarray]
Forward = Callable[[Weights, Batch], tuple[np.ndarray, Callable[[np.ndarray], Gradients]]]
"""From weights and a batch to the output, and to the function from its gradient to that of each weight."""
Loss = Callable[[np.ndarray, Batch], tuple[np.ndarray, np.ndarray]]
"""From the output and the batch to the loss, and to its gradient with respect to the output."""


def steps(
    data: Data, mode: Mode, output: str, forward: Forward, loss_of: Loss, settings: AdamW | Sgd = ADAMW
) -> Iterator[Mapping[str, np.ndarray]]:
    """Yield the output by its name; or the loss and the gradient of each weight; or the loss before each update.

    With the first loss, training yields the moving averages of the gradients as `m_` and the name of the weight. Later
    ones are not defined as well: AdamW divides gradients by their size, so that rounding decides about an update if a
    gradient is nearly zero.
    """
    weights = {name: weight.astype(np.float64) for name, weight in data.weights.items()}
    optimizer = Adam(weights, settings) if isinstance(settings, AdamW) else Momentum(weights, settings)
    for number, batch in enumerate(data.batches):
        result, pullback = forward(weights, batch)
        if mode == "inference":
            yield {output: result}
            continue
        loss, d_result = loss_of(result, batch)
        gradients = pullback(d_result)
        if mode == "training":
            optimizer.step(weights, gradients)
            first = {f"m_{name}": optimizer.average[name] for name in gradients} if number == 0 else {}
            yield {"loss": loss, **first}
        else:
            yield {"loss": loss, **{f"d_{name}": gradient for name, gradient in gradients.items()}}


class Momentum:
    """Stochastic gradient descent with momentum."""

    def __init__(self, weights: Weights, settings: Sgd) -> None:
        self.settings = settings
        self.average = {name: np.zeros_like(weight) for name, weight in weights.items()}

    def step(self, weights: Weights, gradients: Weights) -> None:
        """Update the weights that have a gradient in place."""
        s = self.settings
        for name, gradient in gradients.items():
            weight = weights[name]
            self.average[name] = s.momentum * self.average[name] + gradient + s.weight_decay * weight
            weight[...] -= s.learning_rate * self.average[name]


class Adam:
    """AdamW with bias correction."""

    def __init__(self, weights: Weights, settings: AdamW) -> None:
        self.settings = settings
        self.steps = 0
        self.average = {name: np.zeros_like(weight) for name, weight in weights.items()}
        self.second = {name: np.zeros_like(weight) for name, weight in weights.items()}

    def step(self, weights: Weights, gradients: Weights) -> None:
        """Update the weights in place."""
        s = self.settings
        self.steps += 1
        for name, weight in weights.items():
            gradient = gradients[name]
            self.average[name] = s.beta_1 * self.average[name] + (1 - s.beta_1) * gradient
            self.second[name] = s.beta_2 * self.second[name] + (1 - s.beta_2) * gradient**2
            mean = self.average[name] / (1 - s.beta_1**self.steps)
            deviation = np.sqrt(self.second[name] / (1 - s.beta_2**self.steps))
            decay: Any = s.weight_decay * weight if weight.ndim > 1 else 0.0
            weight[...] -= s.learning_rate * (mean / (deviation + s.eps) + decay)
