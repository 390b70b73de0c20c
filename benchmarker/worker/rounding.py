"""Arithmetic in a short type, emulated in float64: it shows how far off a correct result in that type is.

The reference of a problem is NumPy code. Given `rounded` data, it computes as an implementation does that keeps nothing
in a longer type than it must: weights, inputs, the factors of a product and the result of every operation are rounded.
Sums within an operation are not, since those of implementations have a much longer type. Exponents have no limits, as
implementations scale what would leave the range of fp16. Factors in int8 have one scale each.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import log2
from typing import Any

import numpy as np

from benchmarker.api.precision import UNIT_ROUNDOFF, Precision
from benchmarker.api.problem import Data

_PRODUCTS = {np.matmul, np.dot, np.einsum, np.tensordot}
"""Functions whose arguments are the factors of a product."""


def rounded(data: Data, types: Precision) -> Data:
    """Return weights and inputs as a precision stores them; what is computed from them is rounded as well."""

    def stored(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {
            name: Rounded(value, types, types.parameter) if value.dtype.kind == "f" else value
            for name, value in arrays.items()
        }

    weights = stored(data.weights)
    for value in weights.values():
        if isinstance(value, Rounded):
            value.is_weight = True
    return Data(weights, tuple(map(stored, data.batches)))


def to_type(values: np.ndarray, name: str) -> np.ndarray:
    """Round float64 values to the significand of a type: to the nearest, ties to even, as IEEE 754 has it.

    Factors in tf32 are truncated: a kernel may leave the conversion to the Tensor Cores, which ignore the other bits.
    """
    dropped = 53 + round(log2(UNIT_ROUNDOFF[name]))
    if dropped == 0:
        return values
    bits = np.ascontiguousarray(values).view(np.int64)
    if name != "tf32":
        bits = bits + (1 << dropped - 1) - 1 + (bits >> dropped & 1)
    return (bits >> dropped << dropped).view(values.dtype).reshape(values.shape)


def quantized(values: np.ndarray) -> np.ndarray:
    """Round to the nearest multiple of a 127th of the largest magnitude: int8 with one scale and no zero point.

    No step is longer than this one: scales of single outputs are at most as large, and between the smallest and the
    largest number, 255 steps as of ONNX's DynamicQuantizeLinear (operators, version 11) take at most as long ones.
    """
    scale = np.max(np.abs(values), initial=0.0) / 127
    return np.rint(values / scale) * scale if scale else values


class Rounded(np.ndarray):
    """A float64 array of values that are representable in the type in which it is `stored`.

    An array to which an operation writes keeps its type: that of weights which an optimizer updates may be longer than
    that of other results.
    """

    types: Precision
    stored: str
    is_weight = False

    def __new__(cls, values: np.ndarray, types: Precision, stored: str) -> Rounded:
        """Round the values to the type in which they are stored."""
        array = to_type(np.asarray(values, np.float64), stored).view(cls)
        array.types, array.stored = types, stored
        return array

    def __array_finalize__(self, source: Any) -> None:
        """Let views have the types of what they show."""
        if isinstance(source, Rounded):
            self.types, self.stored, self.is_weight = source.types, source.stored, source.is_weight

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """Apply an elementwise function, a sum, or a product of matrices, and round what it gives."""
        written = options.get("out", inputs[:1] if method == "at" else ())
        if method == "accumulate":
            return self._accumulated(ufunc, *inputs, **options)
        if "out" in options:
            options["out"] = tuple(map(_plain, written))
        result = getattr(ufunc, method)(*self._arguments(ufunc, inputs), **options)
        if not written:
            return self._wrapped(result)
        for target in written:
            values = _plain(target)
            values[...] = to_type(values, target.stored if isinstance(target, Rounded) else self.types.result)
        return written[0] if method != "at" else None

    def __array_function__(self, function: Any, _: Any, args: Any, options: Any) -> Any:
        """Apply any other function of NumPy, and round what it gives."""
        plain_options = {name: _plain(value) for name, value in options.items()}
        return self._wrapped(function(*self._arguments(function, args), **plain_options))

    def _accumulated(self, ufunc: np.ufunc, values: Rounded, axis: int = 0) -> Rounded:
        """Apply a function of two to each row along an axis and the result so far, which is rounded, too."""
        results, name = _plain(values).copy(), self.types.result
        rows = np.moveaxis(results, axis, 0)
        for number in range(1, len(rows)):
            rows[number] = to_type(ufunc(rows[number - 1], rows[number]), name)
        return Rounded(results, self.types, name)

    def _arguments(self, function: Any, arguments: Any) -> Any:
        plain = _plain(tuple(arguments))
        is_of_weights = any(isinstance(value, Rounded) and value.is_weight for value in arguments)
        if function not in _PRODUCTS or (self.types.quantizes and not is_of_weights):
            return plain
        to_factor = quantized if self.types.quantizes else partial(to_type, name=self.types.compute)
        return tuple(to_factor(value) if _is_float64(value) else value for value in plain)

    def _wrapped(self, result: Any) -> Any:
        if isinstance(result, list):
            return [self._wrapped(item) for item in result]
        return Rounded(result, self.types, self.types.result) if _is_float64(result) else result


def _plain(value: Any) -> Any:
    """Return an array, or a list or tuple of arrays, as NumPy's own."""
    if isinstance(value, list | tuple):
        return type(value)([_plain(item) for item in value])
    return value.view(np.ndarray) if isinstance(value, Rounded) else value


def _is_float64(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.float64) and value.dtype == np.float64
