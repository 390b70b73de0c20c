"""The matrix products of PyTorch's ops, from the shapes, types and strides that its profiler records."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from benchmarker.traces.formats.gemm import Gemm, dtype
from benchmarker.traces.formats.shapes import ATEN_TYPES

_LEFT = {
    "aten::mm": 0,
    "aten::_int_mm": 0,
    "aten::_scaled_mm": 0,
    "aten::addmm": 1,
    "aten::_addmm_activation": 1,
    "aten::bmm": 0,
    "aten::baddbmm": 1,
    "aten::mv": 0,
    "aten::addmv": 1,
    "aten::linear": 0,
    "mkl::_mkl_linear": 0,
}
"""The argument that is the first factor; the second comes after it, or is the one below."""
_RIGHT = {"mkl::_mkl_linear": 2}


def aten_gemm(op: str, dims: Sequence[Any], types: Sequence[Any], strides: Any) -> Gemm | None:
    """The product that an op computes, whose shapes must fit (as `aten_cost` checks); None if it is no product.

    `dims`, `types` and `strides` are a trace's "Input Dims", "Input type" and "Input Strides".
    """
    left = _LEFT.get(op)
    if left is None:
        return None
    factors = (left, _RIGHT.get(op, left + 1))
    a, b = (dims[at] for at in factors)
    types_ = [ATEN_TYPES[types[at]].name for at in factors]
    layouts = [_layout(dims[at], _strides(strides, at)) for at in factors]
    if op in ("aten::linear", "mkl::_mkl_linear"):
        return Gemm(dtype(*types_), prod(a[:-1]), prod(b[:-1]), a[-1], 1, layouts[0] + _SWAPPED[layouts[1]])
    n = b[-1] if len(b) > 1 else 1
    return Gemm(dtype(*types_), a[-2], n, a[-1], prod(a[:-2]), "".join(layouts))


_SWAPPED = {"N": "T", "T": "N", "-": "-"}
"""The layout of the transposed matrix."""


def _strides(strides: Any, at: int) -> Sequence[Any]:
    found = strides[at] if isinstance(strides, list) and at < len(strides) else None
    return found if isinstance(found, list) else ()


def _layout(dims: Sequence[int], strides: Sequence[Any]) -> str:
    """N if the last dimension is adjacent in memory, T if the one before it is, `-` if that is unknown."""
    if len(strides) != len(dims):
        return "-"
    if strides[-1] == 1 or dims[-1] == 1:
        return "N"
    return "T" if len(dims) > 1 and (strides[-2] == 1 or dims[-2] == 1) else "-"
