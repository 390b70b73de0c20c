"""Factors of products in 8-bit floating point with scales, as they are stored.

Source of the formats: OCP 8-bit Floating Point Specification (OFP8), revision 1.0, 2023. E4M3 has 4 significant bits,
no infinity and one NaN for each sign; E5M2 has 3 significant bits, infinities and NaNs as IEEE 754 has them. Both have
subnormal numbers. A value is rounded to nearest, ties to even, and beyond the largest number it saturates.

The scale of a matrix, or of a row of A and a column of B, is its largest magnitude over the largest number of the
format, in fp32: value ≈ number · scale. So nothing saturates, and numbers below the subnormal ones become zero.
"""

from typing import NamedTuple

import numpy as np

from benchmarker import PRECISIONS, Precision


class Format(NamedTuple):
    """Significant bits, the exponent of the smallest normal number, and the largest number."""

    bits: int
    least_exponent: int
    largest: float


SCALED = tuple(name for name, types in PRECISIONS.items() if types.scale)
"""Precisions in which matrices are stored with scales."""
FORMATS = {"fp8_e4m3": Format(4, -6, 448.0), "fp8_e5m2": Format(3, -14, 57344.0)}
MARGIN = 1.25
"""How much larger than with exact sums an error may be: tensor cores add products of fp8 in less than fp32."""


def rounded(values: np.ndarray, name: str) -> np.ndarray:
    """Return the nearest numbers of a format, in float64; NaN stays NaN."""
    bits, least_exponent, largest = FORMATS[name]
    exponent = np.maximum(np.frexp(values.astype(np.float64))[1] - 1, least_exponent)
    step = np.ldexp(1.0, exponent - (bits - 1))
    nearest: np.ndarray = np.clip(np.rint(values / step) * step, -largest, largest)
    return nearest


def scale_axes(types: Precision, axis: int) -> int | tuple[int, int]:
    """Return the axes along which numbers share a scale, given that of the sum."""
    return axis if types.scale == "row" else (-2, -1)


def scaled(values: np.ndarray, types: Precision, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers that stand for values, in float32, and their scales, which broadcast.

    `axis` is that of the sum, along which values of a row of A or a column of B are. A scale is a product with the
    reciprocal of the largest number, as compilers make of a quotient: so it is the same in all frameworks.
    """
    values = values.astype(np.float32)
    largest = np.abs(values).max(axis=scale_axes(types, axis), keepdims=True)
    scale = np.where(largest == 0, np.float32(1), largest * np.float32(1 / FORMATS[types.parameter].largest))
    return rounded(values / scale, types.parameter).astype(np.float32), scale


def deviation(a_MK: np.ndarray, b_KN: np.ndarray, types: Precision) -> np.ndarray:
    """Return how far off each element of a product may be whose factors are stored so."""
    a, b = (numbers.astype(np.float64) * scale for numbers, scale in (scaled(a_MK, types, -1), scaled(b_KN, types, -2)))
    off: np.ndarray = MARGIN * np.abs(a @ b - a_MK.astype(np.float64) @ b_KN.astype(np.float64))
    return off
