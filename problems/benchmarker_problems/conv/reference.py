"""Convolution in NumPy as a matrix product of patches (im2col), with a handwritten backward pass.

Shapes: B batch, X axes of the image, Y of the output, K of the kernel, I input channels (of one group in a kernel),
O output channels, G groups, N positions of the output in all images, P elements of a patch in one group.
"""

from collections.abc import Callable
from itertools import product
from math import prod

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

Pullback = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


def out_size(image_size: int, kernel_size: int, stride: int, padding: int, dilation: int) -> int:
    """Return the size of a convolution's output along an axis."""
    return (image_size + 2 * padding - dilation * (kernel_size - 1) - 1) // stride + 1


def convolve(
    x_BXI: np.ndarray, w_KIO: np.ndarray, stride: int = 1, padding: int = 0, dilation: int = 1, groups: int = 1
) -> tuple[np.ndarray, Pullback]:
    """Return the convolution, and the function from its gradient to those of the image and of the kernel."""
    dims, outputs = x_BXI.ndim - 2, w_KIO.shape[-1]
    kernel = w_KIO.shape[:dims]
    padded_BXI = np.pad(x_BXI, [(0, 0), *dims * [(padding, padding)], (0, 0)])
    windows_BYKI = patches(padded_BXI, kernel, stride, dilation)
    places, rows = windows_BYKI.shape[: dims + 1], prod(windows_BYKI.shape[: dims + 1])
    by_group_GBYKI = np.moveaxis(windows_BYKI.reshape(*windows_BYKI.shape[:-1], groups, -1), -2, 0)
    patches_GNP = by_group_GBYKI.reshape(groups, rows, -1)
    w_GPO = w_KIO.reshape(patches_GNP.shape[-1], groups, -1).swapaxes(0, 1)
    out_GNO = patches_GNP @ w_GPO

    def pullback(d_out_BYO: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        d_out_GNO = d_out_BYO.reshape(rows, groups, -1).swapaxes(0, 1)
        d_w_GPO = patches_GNP.swapaxes(1, 2) @ d_out_GNO
        d_by_group_GBYKI = (d_out_GNO @ w_GPO.swapaxes(1, 2)).reshape(by_group_GBYKI.shape)
        d_windows_BYKI = np.moveaxis(d_by_group_GBYKI, 0, -2).reshape(windows_BYKI.shape)
        d_padded_BXI = np.zeros_like(padded_BXI)
        for place in product(*map(range, kernel)):
            read = (
                slice(at * dilation, at * dilation + (count - 1) * stride + 1, stride)
                for at, count in zip(place, places[1:], strict=True)
            )
            d_padded_BXI[(slice(None), *read)] += d_windows_BYKI[(*(dims + 1) * (slice(None),), *place)]
        inner = dims * (slice(padding, -padding or None),)
        return d_padded_BXI[(slice(None), *inner)], d_w_GPO.swapaxes(0, 1).reshape(w_KIO.shape)

    return out_GNO.swapaxes(0, 1).reshape(*places, outputs), pullback


def patches(padded_BXI: np.ndarray, kernel: tuple[int, ...], stride: int, dilation: int) -> np.ndarray:
    """Return a view [B, *Y, *K, I] of what the kernel reads at each position; channels are last, as they lie in memory.

    A copy of it is then fast, and in the order of a kernel.
    """
    dims = len(kernel)
    spans = [dilation * (size - 1) + 1 for size in kernel]
    view_BXIK = sliding_window_view(padded_BXI, spans, axis=tuple(range(1, dims + 1)))
    view_BXKI = np.moveaxis(view_BXIK, dims + 1, -1)
    return view_BXKI[(slice(None), *dims * (slice(None, None, stride),), *dims * (slice(None, None, dilation),))]
