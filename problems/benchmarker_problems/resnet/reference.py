"""ResNet in NumPy with a handwritten backward pass, in the type of its weights: the reference of every check.

Shapes: B batch, X positions of an image (two axes), C channels, V classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from benchmarker_problems.conv.reference import convolve, patches
from benchmarker_problems.layers.reference import Gradients, Plain, Pullback, Weights, linear, prefixed, select

if TYPE_CHECKING:
    from benchmarker_problems.resnet import Block, Conv, Resnet

NORM_EPS = 1e-5
MOMENTUM = 0.9
"""Share that a running statistic keeps in a step, as flax counts it; PyTorch counts the share of the batch, 0.1."""


def forward(
    weights: Weights, images_BXC: np.ndarray, problem: Resnet, *, train: bool
) -> tuple[np.ndarray, Callable[[np.ndarray], Gradients]]:
    """Return the logits, and the function from their gradient to that of each weight.

    It normalises over the batch if `train`, otherwise with the running statistics, which it does not change.
    """
    x_BXC, stem_pullback = conv_norm(images_BXC, weights, problem.stem, train)
    x_BXC, relu_pullback = relu(x_BXC)
    x_BXC, pool_pullback = max_pool(x_BXC)
    pullbacks = []
    for each in problem.residual:
        x_BXC, pullback = block(x_BXC, weights, each, train)
        pullbacks.append(pullback)
    logits_BV, fc_pullback = linear(x_BXC.mean(axis=(1, 2)), select(weights, "fc"))

    def to_weights(d_logits_BV: np.ndarray) -> Gradients:
        d_mean_BC, d_fc = fc_pullback(d_logits_BV)
        gradients = prefixed("fc", d_fc)
        d_x_BXC = np.broadcast_to(d_mean_BC[:, None, None], x_BXC.shape) / (x_BXC.shape[1] * x_BXC.shape[2])
        for pullback in reversed(pullbacks):
            d_x_BXC, d_block = pullback(d_x_BXC)
            gradients |= d_block
        _, d_stem = stem_pullback(relu_pullback(pool_pullback(d_x_BXC)))
        return gradients | d_stem

    return logits_BV, to_weights


def block(x_BXC: np.ndarray, weights: Weights, layers: Block, train: bool) -> tuple[np.ndarray, Pullback]:
    """Return relu(branch + shortcut); gradients have the full names of the weights."""
    pullbacks: list[Callable[[np.ndarray], np.ndarray]] = []
    gradients: Gradients = {}

    def through(pullback: Pullback) -> Plain:
        def plain(d_y_BXC: np.ndarray) -> np.ndarray:
            d_x_BXC, of_weights = pullback(d_y_BXC)
            gradients.update(of_weights)
            return d_x_BXC

        return plain

    h_BXC = x_BXC
    for conv in layers.convs:
        if pullbacks:
            h_BXC, relu_pullback = relu(h_BXC)
            pullbacks.append(relu_pullback)
        h_BXC, conv_pullback = conv_norm(h_BXC, weights, conv, train)
        pullbacks.append(through(conv_pullback))
    short_BXC: np.ndarray = x_BXC
    short_pullback: Plain = lambda d_y_BXC: d_y_BXC  # noqa: E731
    if layers.shortcut:
        short_BXC, conv_pullback = conv_norm(x_BXC, weights, layers.shortcut, train)
        short_pullback = through(conv_pullback)
    y_BXC, last_pullback = relu(h_BXC + short_BXC)

    def pullback(d_y_BXC: np.ndarray) -> tuple[np.ndarray, Gradients]:
        d_sum_BXC = d_h_BXC = last_pullback(d_y_BXC)
        for each in reversed(pullbacks):
            d_h_BXC = each(d_h_BXC)
        return d_h_BXC + short_pullback(d_sum_BXC), gradients

    return y_BXC, pullback


def conv_norm(x_BXC: np.ndarray, weights: Weights, conv: Conv, train: bool) -> tuple[np.ndarray, Pullback]:
    """Convolve and normalise."""
    kernel = f"{conv.name}.kernel"
    y_BXC, conv_pullback = convolve(x_BXC, weights[kernel], conv.stride, conv.kernel_size // 2)
    y_BXC, norm_pullback = batch_norm(y_BXC, select(weights, conv.norm_name), train)

    def pullback(d_y_BXC: np.ndarray) -> tuple[np.ndarray, Gradients]:
        d_y_BXC, d_norm = norm_pullback(d_y_BXC)
        d_x_BXC, d_kernel = conv_pullback(d_y_BXC)
        return d_x_BXC, {kernel: d_kernel, **prefixed(conv.norm_name, d_norm)}

    return y_BXC, pullback


def batch_norm(x_BXC: np.ndarray, weights: Weights, train: bool) -> tuple[np.ndarray, Pullback]:
    """Normalise each channel over batch and positions, or by its running statistics (Ioffe and Szegedy, 2015)."""
    scale_C = weights["scale"]
    mean_C, var_C = (
        (x_BXC.mean(axis=(0, 1, 2)), x_BXC.var(axis=(0, 1, 2))) if train else (weights["mean"], weights["var"])
    )
    rstd_C = 1 / np.sqrt(var_C + x_BXC.dtype.type(NORM_EPS))
    unit_BXC = (x_BXC - mean_C) * rstd_C

    def pullback(d_y_BXC: np.ndarray) -> tuple[np.ndarray, Gradients]:
        gradients = {"scale": (d_y_BXC * unit_BXC).sum(axis=(0, 1, 2)), "bias": d_y_BXC.sum(axis=(0, 1, 2))}
        d_unit_BXC = d_y_BXC * scale_C
        if train:
            along_C = (d_unit_BXC * unit_BXC).mean(axis=(0, 1, 2))
            d_unit_BXC = d_unit_BXC - d_unit_BXC.mean(axis=(0, 1, 2)) - unit_BXC * along_C
        return d_unit_BXC * rstd_C, gradients

    return unit_BXC * scale_C + weights["bias"], pullback


def relu(x: np.ndarray) -> tuple[np.ndarray, Plain]:
    """Return max(x, 0)."""
    return np.maximum(x, 0), lambda d_y: np.where(x > 0, d_y, 0)


def max_pool(x_BXC: np.ndarray) -> tuple[np.ndarray, Plain]:
    """Return the maximum over 3×3 with a stride of 2 and a padding of 1; the first of equal ones has the gradient."""
    around = ((0, 0), (1, 1), (1, 1), (0, 0))
    padded_BXC = np.pad(x_BXC, around, constant_values=-np.inf)
    windows_BXKC = patches(padded_BXC, (3, 3), 2, 1)
    windows_BX9C = windows_BXKC.reshape(*windows_BXKC.shape[:3], 9, -1)
    first_BXC = windows_BX9C.argmax(axis=-2)

    def pullback(d_y_BXC: np.ndarray) -> np.ndarray:
        d_padded_BXC = np.zeros_like(padded_BXC)
        b, y, x, c = np.indices(first_BXC.shape)
        np.add.at(d_padded_BXC, (b, 2 * y + first_BXC // 3, 2 * x + first_BXC % 3, c), d_y_BXC)
        return d_padded_BXC[:, 1:-1, 1:-1]

    return windows_BX9C.max(axis=-2), pullback
