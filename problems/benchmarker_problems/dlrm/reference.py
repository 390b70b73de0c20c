"""DLRM in NumPy with a handwritten backward pass, in the type of its weights: the reference of every check.

Shapes: B batch, S tables, P indices of a bag, D width of a row, I dense features, N = S + 1 vectors, Q pairs of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from benchmarker_problems.layers.layer import chain
from benchmarker_problems.layers.reference import Gradients, Weights

if TYPE_CHECKING:
    from benchmarker_problems.dlrm import Dlrm

TABLES = "embeddings"
"""Name of the weight that holds all tables, [tables·rows, D]."""
BAGS = "bags"
"""Name under which gradients with respect to the sums of the bags, [B, S, D], stand beside those of weights."""
LEARNING_RATE = 0.1
"""Of SGD, as in the authors' bench/dlrm_s_criteo_kaggle.sh."""


def forward(
    weights: Weights, dense_BI: np.ndarray, indices_BSP: np.ndarray, problem: Dlrm
) -> tuple[np.ndarray, Callable[[np.ndarray], Gradients]]:
    """Return the logits, [B], and the function from their gradient to those of the MLPs' weights and of the bags."""
    bags_BSD = weights[TABLES][indices_BSP].sum(axis=2)
    bottom_BD, bottom_pullback = chain(problem.bottom, dense_BI, weights)
    vectors_BND = np.concatenate([bottom_BD[:, None], bags_BSD], axis=1)
    products_BNN = vectors_BND @ vectors_BND.swapaxes(1, 2)
    pairs = (slice(None), *np.tril_indices(problem.vectors, -1))
    top_BI = np.concatenate([bottom_BD, products_BNN[pairs]], axis=1)
    logits_B1, top_pullback = chain(problem.top, top_BI, weights)

    def pullback(d_logits_B: np.ndarray) -> Gradients:
        d_top_BI, d_top = top_pullback(d_logits_B[:, None])
        d_bottom_BD, d_pairs_BQ = np.split(d_top_BI, [problem.embedding_dim], axis=1)
        d_products_BNN = np.zeros_like(products_BNN)
        d_products_BNN[pairs] = d_pairs_BQ
        d_vectors_BND = (d_products_BNN + d_products_BNN.swapaxes(1, 2)) @ vectors_BND
        _, d_bottom = bottom_pullback(d_bottom_BD + d_vectors_BND[:, 0])
        return {**d_bottom, **d_top, BAGS: d_vectors_BND[:, 1:]}

    return logits_B1[:, 0], pullback


def binary_cross_entropy(logits_B: np.ndarray, targets_B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of −log of the probability, a sigmoid, of each target (0 or 1), and its gradient."""
    loss = np.logaddexp(0, logits_B) - targets_B * logits_B
    d_logits_B = 0.5 * (1 + np.tanh(0.5 * logits_B)) - targets_B
    return loss.mean(), d_logits_B / logits_B.size
