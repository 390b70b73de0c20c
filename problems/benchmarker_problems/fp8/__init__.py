"""Factors of products in floating point of 8 and 4 bits with scales, as they are stored: value ≈ number · scale.

Source of E4M3 and E5M2: OCP 8-bit Floating Point Specification (OFP8), revision 1.0, 2023. E4M3 has 4 significant bits,
no infinity and one NaN for each sign; E5M2 has 3 significant bits, infinities and NaNs as IEEE 754 has them. E2M1 has 2
significant bits and neither. All have subnormal numbers. A value is rounded to nearest, ties to even, and beyond the
largest number it saturates.

The scale of a matrix, or of a row of A and a column of B, is its largest magnitude over the largest number of the
format, in fp32. So nothing saturates, and numbers below the subnormal ones become zero. Where blocks have scales, they
are along the axis of the sum, and the last one may be shorter:

- `mx`: 32 numbers share a power of two, of E8M0: the largest power of two in their largest magnitude over that in the
  largest number of the format (OCP Microscaling Formats Specification, version 1.0, 2023, section 6.3). So the largest
  magnitudes may saturate.
- `nv`: 16 numbers share a scale in E4M3, their largest magnitude over the largest number of E2M1. All of a matrix share
  one in fp32, with which the largest scale of a block is the largest number of E4M3 (NVIDIA, "Pretraining large
  language models with NVFP4", 2025, appendix C).
"""

from typing import NamedTuple

import numpy as np

from benchmarker import PRECISIONS, Precision


class Format(NamedTuple):
    """Significant bits, the exponent of the smallest normal number, and the largest number."""

    bits: int
    least_exponent: int
    largest: float


SCALED = tuple(name for name, types in PRECISIONS.items() if types.scale and not types.is_emulated)
"""Precisions in which matrices are stored with scales, and multiplied so."""
EMULATED = tuple(name for name, types in PRECISIONS.items() if types.is_emulated)
"""Precisions of which blocks have scales."""
FORMATS = {"fp8_e4m3": Format(4, -6, 448.0), "fp8_e5m2": Format(3, -14, 57344.0), "fp4_e2m1": Format(2, 0, 6.0)}
BLOCK = {"mx": 32, "nv": 16}
"""How many numbers of a block share a scale."""
E8M0 = 127
"""Largest exponent of E8M0; the smallest is its negative."""
MARGIN = 1.25
"""How much larger than with exact sums an error may be: tensor cores add products of fp8 in less than fp32."""
EMULATED_MARGIN = 1.01
"""The same of what is emulated, whose sums are in fp32: few weights of attention are rounded otherwise for it."""


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
    reciprocal of the largest number, as compilers make of a quotient: so it is the same in all frameworks. The scales
    of blocks are in the numbers, which fp32 holds exactly.
    """
    values = values.astype(np.float32)
    if types.is_emulated:
        return _in_blocks(values, types, axis)
    largest = np.abs(values).max(axis=scale_axes(types, axis), keepdims=True)
    scale = np.where(largest == 0, np.float32(1), largest * np.float32(1 / FORMATS[types.parameter].largest))
    return rounded(values / scale, types.parameter).astype(np.float32), scale


def _in_blocks(values: np.ndarray, types: Precision, axis: int) -> tuple[np.ndarray, np.ndarray]:
    rows, form = np.moveaxis(values, axis, -1), FORMATS[types.parameter]
    of_matrix: np.ndarray = np.ones((1, 1), np.float32)
    if types.scale == "nv":
        of_matrix = np.abs(values).max(axis=(-2, -1), keepdims=True) * np.float32(
            1 / (form.largest * FORMATS["fp8_e4m3"].largest)
        )
        of_matrix = np.where(of_matrix == 0, np.float32(1), of_matrix)
    k, size = rows.shape[-1], BLOCK[types.scale]
    padded = np.pad(rows / of_matrix, [(0, 0)] * (rows.ndim - 1) + [(0, -k % size)])
    blocks = padded.reshape(*rows.shape[:-1], -1, size)
    largest = np.abs(blocks).max(axis=-1, keepdims=True)
    scale = block_scale(largest, types)
    numbers = rounded(blocks / np.where(scale == 0, 1, scale), types.parameter) * scale
    stored = numbers.reshape(padded.shape)[..., :k].astype(np.float32)
    return np.moveaxis(stored, -1, axis), of_matrix


def block_scale(largest: np.ndarray, types: Precision) -> np.ndarray:
    """Return the scale of blocks with these largest magnitudes, in float64; NaN if one is not finite."""
    largest_number = FORMATS[types.parameter].largest
    if types.scale == "nv":
        return rounded(largest * np.float32(1 / largest_number), "fp8_e4m3")
    exponent = np.frexp(largest)[1] - np.frexp(largest_number)[1]
    scale: np.ndarray = np.ldexp(np.where(np.isfinite(largest), 1.0, np.nan), np.clip(exponent, -E8M0, E8M0))
    return scale


def product(a_MK: np.ndarray, b_KN: np.ndarray, types: Precision) -> np.ndarray:
    """Return the product of factors that are stored so, in fp32."""
    (a, a_scale), (b, b_scale) = scaled(a_MK, types, -1), scaled(b_KN, types, -2)
    found: np.ndarray = a @ b * a_scale * b_scale
    return found


def margin(types: Precision) -> float:
    """Return how much larger than with exact sums an error may be."""
    return EMULATED_MARGIN if types.is_emulated else MARGIN


def deviation(a_MK: np.ndarray, b_KN: np.ndarray, types: Precision) -> np.ndarray:
    """Return how far off each element of a product may be whose factors are stored so."""
    a, b = (numbers.astype(np.float64) * scale for numbers, scale in (scaled(a_MK, types, -1), scaled(b_KN, types, -2)))
    off: np.ndarray = margin(types) * np.abs(a @ b - a_MK.astype(np.float64) @ b_KN.astype(np.float64))
    return off
