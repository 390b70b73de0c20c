"""DLRM in NumPy with a handwritten backward pass, in the type of its weights: the reference of every check.

Shapes: B batch, S tables, P indices of a bag, D width of a row, I dense features, N = S + 1 vectors, Q pairs of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from benchmarker import Data, Mode
from benchmarker_problems.layers.reference import Gradients, Plain, Pullback, Weights, linear, prefixed, select

if TYPE_CHECKING:
    from benchmarker_problems.dlrm import Dlrm

TABLES = "embeddings"
"""Name of the weight that holds all tables, [tables·rows, D]."""
BAGS = "bags"
"""Name under which gradients with respect to the sums of the bags, [B, S, D], stand beside those of weights."""
LEARNING_RATE = 0.1
"""Of SGD, as in the authors' bench/dlrm_s_criteo_kaggle.sh."""


def steps(problem: Dlrm, data: Data, mode: Mode) -> Iterator[Mapping[str, np.ndarray]]:
    """Yield the logits; or the loss and the gradients of MLPs and bags; or the loss before each SGD step."""
    weights = {name: weight.astype(np.float64) for name, weight in data.weights.items()}
    for batch in data.batches:
        logits_B, pullback = forward(weights, batch["dense"].astype(np.float64), batch["indices"], problem)
        if mode == "inference":
            yield {"logits": logits_B}
            continue
        loss, d_logits_B = binary_cross_entropy(logits_B, batch["targets"])
        gradients = pullback(d_logits_B)
        if mode == "forward_backward":
            yield {"loss": loss, **{f"d_{name}": gradient for name, gradient in gradients.items()}}
            continue
        d_bags_BSD = gradients.pop(BAGS)
        for name, gradient in gradients.items():
            weights[name] -= LEARNING_RATE * gradient
        np.subtract.at(weights[TABLES], batch["indices"], LEARNING_RATE * d_bags_BSD[:, :, None])
        yield {"loss": loss}


def forward(
    weights: Weights, dense_BI: np.ndarray, indices_BSP: np.ndarray, problem: Dlrm
) -> tuple[np.ndarray, Callable[[np.ndarray], Gradients]]:
    """Return the logits, [B], and the function from their gradient to those of the MLPs' weights and of the bags."""
    bags_BSD = weights[TABLES][indices_BSP].sum(axis=2)
    bottom_BD, bottom_pullback = mlp(dense_BI, weights, "bottom", len(problem.bottom_widths) - 1)
    bottom_BD, relu_pullback = relu(bottom_BD)
    vectors_BND = np.concatenate([bottom_BD[:, None], bags_BSD], axis=1)
    products_BNN = vectors_BND @ vectors_BND.swapaxes(1, 2)
    pairs = (slice(None), *np.tril_indices(problem.vectors, -1))
    top_BI = np.concatenate([bottom_BD, products_BNN[pairs]], axis=1)
    logits_B1, top_pullback = mlp(top_BI, weights, "top", len(problem.top_widths) - 1)

    def pullback(d_logits_B: np.ndarray) -> Gradients:
        d_top_BI, d_top = top_pullback(d_logits_B[:, None])
        d_bottom_BD, d_pairs_BQ = np.split(d_top_BI, [problem.embedding_dim], axis=1)
        d_products_BNN = np.zeros_like(products_BNN)
        d_products_BNN[pairs] = d_pairs_BQ
        d_vectors_BND = (d_products_BNN + d_products_BNN.swapaxes(1, 2)) @ vectors_BND
        _, d_bottom = bottom_pullback(relu_pullback(d_bottom_BD + d_vectors_BND[:, 0]))
        return {**d_bottom, **d_top, BAGS: d_vectors_BND[:, 1:]}

    return logits_B1[:, 0], pullback


def mlp(x_I: np.ndarray, weights: Weights, name: str, layers: int) -> tuple[np.ndarray, Pullback]:
    """Apply linear layers with ReLU between them."""
    pullbacks: list[tuple[str, Pullback, Plain]] = []
    for number in range(layers):
        x_I, relu_pullback = relu(x_I) if number else (x_I, lambda d_x_I: d_x_I)
        x_I, linear_pullback = linear(x_I, select(weights, f"{name}.{number}"))
        pullbacks.append((f"{name}.{number}", linear_pullback, relu_pullback))

    def pullback(d_y_O: np.ndarray) -> tuple[np.ndarray, Gradients]:
        gradients: Gradients = {}
        for layer, linear_pullback, relu_pullback in reversed(pullbacks):
            d_y_O, of_layer = linear_pullback(d_y_O)
            d_y_O = relu_pullback(d_y_O)
            gradients |= prefixed(layer, of_layer)
        return d_y_O, gradients

    return x_I, pullback


def relu(x: np.ndarray) -> tuple[np.ndarray, Plain]:
    """Return max(x, 0)."""
    return np.maximum(x, 0), lambda d_y: np.where(x > 0, d_y, 0)


def binary_cross_entropy(logits_B: np.ndarray, targets_B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of −log of the probability, a sigmoid, of each target (0 or 1), and its gradient."""
    loss = np.logaddexp(0, logits_B) - targets_B * logits_B
    d_logits_B = 0.5 * (1 + np.tanh(0.5 * logits_B)) - targets_B
    return loss.mean(), d_logits_B / logits_B.size
