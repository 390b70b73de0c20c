"""Products in fp64 by slices of int8: the Ozaki scheme on integer matrix units.

Source: Ootomo, Ozaki and Yokota, "DGEMM on integer matrix multiplication unit", International Journal of High
Performance Computing Applications, 2024. Each row of A and each column of B is scaled by a power of two to numbers
below 1, of which each slice holds the next 7 bits and the sign. Products of two slices are exact in int32, and those
that count are added up in fp64; those of equal weight first in int32 where they fit (Uchino, Ozaki and Imamura,
"Performance enhancement of the Ozaki scheme on integer matrix multiplication unit", 2025). What is cut off is small
beside the largest entry of a row or column, and not beside each entry: where entries differ by many powers of two, the
small ones lose bits, or all of them.

Shapes: as of `Gemm`; `1` an axis of scales.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from benchmarker import UserError

BITS = 7
"""Bits of a slice, beside the sign."""
MOST_K = (2**31 - 1) // (2**BITS - 1) ** 2
"""Most products of two slices whose sum fits into int32: 133,144."""


def require_exact(k: int) -> None:
    """Raise `UserError` if sums of so many products of slices may not fit into int32."""
    if k > MOST_K:
        raise UserError(f"sums of k={k} products of int8 slices may not fit into int32; use k of at most {MOST_K}")


class Arithmetic(NamedTuple):
    """What a framework has: `torch` or `jax.numpy`, conversions, and the product of int8, exact in int32."""

    xp: Any
    to_int8: Callable[[Any], Any]
    to_fp64: Callable[[Any], Any]
    multiply: Callable[[Any, Any], Any]


def split(values: Any, slices: int, axis: int, of: Arithmetic) -> tuple[list[Any], Any]:
    """Return matrices of int8 whose sum, the p-th times 2^(−7·p), approximates fp64 values over their scales.

    The scales are the least powers of two above all values along the axis, which is that of the sum. Values are
    truncated: the sum is off by less than 2^(−7·slices).
    """
    xp = of.xp
    largest = xp.amax(abs(values), axis=axis, keepdims=True)
    significand = xp.frexp(largest)[0]
    is_zero = significand == 0
    scale = xp.where(is_zero, 1.0, largest / xp.where(is_zero, 1.0, significand))
    rest, found = values / scale, []
    for _ in range(slices):
        rest = rest * 2**BITS
        whole = xp.trunc(rest)
        found.append(of.to_int8(whole))
        rest = rest - whole
    return found, scale


def product(a_MK: Any, b_KN: Any, slices: int, of: Arithmetic) -> Any:
    """Return A·B in fp64 of fp64 matrices.

    Of the products of the p-th slice of A and the q-th of B, those with p + q ≤ s + 1 count: s·(s + 1)/2 of s slices.
    Those with equal p + q are added exactly, the smallest first.
    """
    a_slices, a_scale_M1 = split(a_MK, slices, -1, of)
    b_slices, b_scale_1N = split(b_KN, slices, -2, of)
    fit = slices * a_MK.shape[-1] <= MOST_K
    total: Any = 0.0
    for number in reversed(range(slices)):
        products = (of.multiply(a_slices[p], b_slices[number - p]) for p in range(number + 1))
        total = total * 2.0**-BITS + (of.to_fp64(sum(products)) if fit else sum(map(of.to_fp64, products)))
    return total * 2.0 ** (-2 * BITS) * a_scale_M1 * b_scale_1N


def truncation(a_MK: np.ndarray, b_KN: np.ndarray, slices: int) -> np.ndarray:
    """Return how far off each element of a product may be because slices are cut off: (s + 1)·k·2^(−7·s)·α·β.

    α and β are the scales of its row and column, and s is the number of slices. Proof: the p-th slice of A, of numbers
    below 2^(7−7·p)·α, is not multiplied with what follows the first s + 1 − p slices of B, which is below
    2^(−7·(s+1−p))·β. Each of the s slices so loses less than 2^(−7·s)·α·β in each of the k products, and what follows
    the last slice of A as much.
    """
    alpha_M1 = 2.0 ** np.frexp(np.abs(a_MK).max(axis=-1, keepdims=True))[1]
    beta_1N = 2.0 ** np.frexp(np.abs(b_KN).max(axis=-2, keepdims=True))[1]
    bound: np.ndarray = (slices + 1) * a_MK.shape[-1] * 2.0 ** (-BITS * slices) * alpha_M1 * beta_1N
    return bound
