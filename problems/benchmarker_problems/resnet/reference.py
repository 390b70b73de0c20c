"""Layers of ResNet: of each the shapes of its weights, its work by scope, and its result in NumPy.

Shapes: B batch, X positions of an image (two axes), C channels. Rows of work are images.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from benchmarker import Piece, Work
from benchmarker_problems.conv.reference import convolve, patches
from benchmarker_problems.layers import Shapes, norm_shapes
from benchmarker_problems.layers.layer import Layer, Pointwise, chain, parts_of, shapes_of
from benchmarker_problems.layers.reference import Gradients, Pullback, Weights, prefixed, relu, select
from benchmarker_problems.layers.work import RowWork

NORM_EPS = 1e-5
MOMENTUM = 0.9
"""Share that a running statistic keeps in a step, as flax counts it; PyTorch counts the share of the batch, 0.1."""


@dataclass(frozen=True)
class Conv(Layer):
    """One convolution without bias, and the normalisation that follows; `scope` and `norm` are their scopes.

    `prefix` and the scope are the name of their weights. The data of a batch (`of_data`) needs no gradient, and a
    `residual` is added afterwards.
    """

    prefix: str
    scope: str
    norm: str
    kernel_size: int
    stride: int
    inputs: int
    outputs: int
    in_size: int
    of_data: bool = False
    residual: bool = False

    @property
    def name(self) -> str:
        """Name of the convolution's weights."""
        return self.prefix + self.scope

    @property
    def norm_name(self) -> str:
        """Name of the normalisation's weights."""
        return self.prefix + self.norm

    @property
    def out_size(self) -> int:
        """Height and width of the output: the padding is half the kernel."""
        return ceil(self.in_size / self.stride)

    def shapes(self) -> Shapes:
        """Return the kernel, [*size, inputs, outputs], and gain, bias and running statistics of the normalisation."""
        return {
            f"{self.name}.kernel": (self.kernel_size, self.kernel_size, self.inputs, self.outputs),
            **norm_shapes(self.norm_name, self.outputs),
            **{f"{self.norm_name}.{statistic}": (self.outputs,) for statistic in ("mean", "var")},
        }

    def parts(self, at: RowWork) -> Mapping[str, Work]:
        """Return the convolution and the normalisation; ReLU and adding a residual belong to the latter."""
        positions = replace(at, rows=at.rows * self.out_size**2)
        weights, read = self.kernel_size**2 * self.inputs * self.outputs, at.rows * self.in_size**2 * self.inputs
        flops = 2 * positions.rows * weights
        work = positions.part(flops, read=read, written=positions.rows * self.outputs, weights=weights)
        if self.of_data and at.backward:
            # The backward pass has one product, and writes no gradient of the images.
            work = replace(work, flops=2 * flops, bytes=work.bytes - read * at.item_bytes)
        normed = positions.pointwise((1 + self.residual) * self.outputs, self.outputs, weights=2 * self.outputs)
        return {self.scope: work, self.norm: normed}

    def pieces(self, rows: int) -> Iterable[Piece]:
        """Return the convolution; that of a batch's data has one less in the backward pass than a `conv`."""
        options = {
            "batch_size": rows,
            "in_channels": self.inputs,
            "out_channels": self.outputs,
            "image_size": self.in_size,
            "kernel_size": self.kernel_size,
            "stride": self.stride,
            "padding": self.kernel_size // 2,
        }
        return [] if self.of_data else [Piece((self.scope,), "conv", options)]

    def forward(self, x: np.ndarray, weights: Weights) -> tuple[np.ndarray, Pullback]:
        """Convolve and normalise; ReLU and adding a residual are not part of it."""
        kernel = f"{self.name}.kernel"
        y_BXC, conv_pullback = convolve(x, weights[kernel], self.stride, self.kernel_size // 2)
        y_BXC, norm_pullback = batch_norm(y_BXC, select(weights, self.norm_name))

        def pullback(d_y_BXC: np.ndarray) -> tuple[np.ndarray, Gradients]:
            d_y_BXC, d_norm = norm_pullback(d_y_BXC)
            d_x_BXC, d_kernel = conv_pullback(d_y_BXC)
            return d_x_BXC, {kernel: d_kernel, **prefixed(self.norm_name, d_norm)}

        return y_BXC, pullback


RELU = Pointwise(None, relu)


@dataclass(frozen=True)
class Block(Layer):
    """relu(branch + shortcut): `convs` of the branch, with the stride in its 3×3 convolution, and the shortcut's."""

    name: str
    convs: tuple[Conv, ...]
    shortcut: Conv | None

    @property
    def every_conv(self) -> tuple[Conv, ...]:
        """The convolutions of the branch, then that of the shortcut."""
        return (*self.convs, *([self.shortcut] if self.shortcut else []))

    def shapes(self) -> Shapes:
        """Return those of all convolutions."""
        return shapes_of(self.every_conv)

    def parts(self, at: RowWork) -> Mapping[str, Work]:
        """Return those of all convolutions."""
        return parts_of(self.every_conv, at)

    def pieces(self, rows: int) -> Iterable[Piece]:
        """Return those of all convolutions."""
        return [piece for conv in self.every_conv for piece in conv.pieces(rows)]

    def forward(self, x: np.ndarray, weights: Weights) -> tuple[np.ndarray, Pullback]:
        """Return the sum of branch and shortcut where it is positive."""
        branch = [layer for conv in self.convs for layer in (RELU, conv)][1:]
        y_BXC, branch_pullback = chain(branch, x, weights)
        short_BXC, short_pullback = chain((self.shortcut,) if self.shortcut else (), x, weights)
        y_BXC, relu_pullback = relu(y_BXC + short_BXC)

        def pullback(d_y_BXC: np.ndarray) -> tuple[np.ndarray, Gradients]:
            d_sum_BXC = relu_pullback(d_y_BXC)
            d_x_BXC, of_branch = branch_pullback(d_sum_BXC)
            d_short_BXC, of_shortcut = short_pullback(d_sum_BXC)
            return d_x_BXC + d_short_BXC, of_branch | of_shortcut

        return y_BXC, pullback


@dataclass(frozen=True)
class MaxPool(Layer):
    """The maximum over 3×3 with a stride of 2 and a padding of 1; the first of equal ones has the gradient."""

    name: str
    in_size: int
    channels: int

    @property
    def out_size(self) -> int:
        """Height and width of the output."""
        return ceil(self.in_size / 2)

    def parts(self, at: RowWork) -> Mapping[str, Work]:
        """Return what is read and written."""
        return {self.name: at.pointwise(self.in_size**2 * self.channels, self.out_size**2 * self.channels)}

    def forward(self, x: np.ndarray, weights: Weights) -> tuple[np.ndarray, Pullback]:
        """Return the maxima."""
        around = ((0, 0), (1, 1), (1, 1), (0, 0))
        padded_BXC = np.pad(x, around, constant_values=-np.inf)
        windows_BXKC = patches(padded_BXC, (3, 3), 2, 1)
        windows_BX9C = windows_BXKC.reshape(*windows_BXKC.shape[:3], 9, -1)
        first_BXC = windows_BX9C.argmax(axis=-2)

        def pullback(d_y_BXC: np.ndarray) -> tuple[np.ndarray, Gradients]:
            d_padded_BXC = np.zeros_like(padded_BXC)
            b, y, x, c = np.indices(first_BXC.shape)
            np.add.at(d_padded_BXC, (b, 2 * y + first_BXC // 3, 2 * x + first_BXC % 3, c), d_y_BXC)
            return d_padded_BXC[:, 1:-1, 1:-1], {}

        return windows_BX9C.max(axis=-2), pullback


@dataclass(frozen=True)
class MeanPool(Layer):
    """The mean over all positions, [B, C]."""

    name: str
    in_size: int
    channels: int

    def parts(self, at: RowWork) -> Mapping[str, Work]:
        """Return what is read and written."""
        return {self.name: at.pointwise(self.in_size**2 * self.channels, self.channels)}

    def forward(self, x: np.ndarray, weights: Weights) -> tuple[np.ndarray, Pullback]:
        """Return the means."""

        def pullback(d_BC: np.ndarray) -> tuple[np.ndarray, Gradients]:
            return np.broadcast_to(d_BC[:, None, None], x.shape) / self.in_size**2, {}

        return x.mean(axis=(1, 2)), pullback


def batch_norm(x_BXC: np.ndarray, weights: Weights) -> tuple[np.ndarray, Pullback]:
    """Normalise each channel by its running statistics, or without them over the batch (Ioffe and Szegedy, 2015)."""
    scale_C, of_batch = weights["scale"], "mean" not in weights
    mean_C, var_C = (
        (x_BXC.mean(axis=(0, 1, 2)), x_BXC.var(axis=(0, 1, 2))) if of_batch else (weights["mean"], weights["var"])
    )
    rstd_C = 1 / np.sqrt(var_C + x_BXC.dtype.type(NORM_EPS))
    unit_BXC = (x_BXC - mean_C) * rstd_C

    def pullback(d_y_BXC: np.ndarray) -> tuple[np.ndarray, Gradients]:
        gradients = {"scale": (d_y_BXC * unit_BXC).sum(axis=(0, 1, 2)), "bias": d_y_BXC.sum(axis=(0, 1, 2))}
        d_unit_BXC = d_y_BXC * scale_C
        if of_batch:
            along_C = (d_unit_BXC * unit_BXC).mean(axis=(0, 1, 2))
            d_unit_BXC = d_unit_BXC - d_unit_BXC.mean(axis=(0, 1, 2)) - unit_BXC * along_C
        return d_unit_BXC * rstd_C, gradients

    return unit_BXC * scale_C + weights["bias"], pullback
