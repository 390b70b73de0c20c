"""FLOPs and minimum bytes of PyTorch's ops, from the shapes and types that its profiler records."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

from benchmarker.traces.formats.notation import ATEN_TYPES, Gemm, dtype

_SCALAR_TYPES = {5: 2, 6: 4, 7: 8, 15: 2, 23: 1, 24: 1, 25: 1, 26: 1}
"""Bytes of an element of the types that a product may return, by their number in c10::ScalarType."""
_MOST_DIMS, _LARGEST_DIM = 8, 1 << 40
"""A shape beyond these limits is rejected; within them, no cost is too large for a float."""


Causal = Literal["half", "full"]
"""How FLOPs of causal attention are counted: the products that the mask keeps, or all, as if there were no mask."""


class _UnknownCostError(Exception):
    """The shapes, types or arguments do not fit the op."""


@dataclass(frozen=True, slots=True)
class _Call:
    """One call of an op as recorded: arguments by position."""

    dims: Sequence[Any]
    types: Sequence[Any]
    concrete: Sequence[Any]
    causal: Causal

    def shape(self, position: int, *ranks: int) -> tuple[int, ...]:
        """A tensor's shape, which must have one of the ranks if any are given."""
        dims = self.dims[position] if position < len(self.dims) else None
        if not isinstance(dims, list | tuple) or len(dims) > _MOST_DIMS or (ranks and len(dims) not in ranks):
            raise _UnknownCostError
        if any(type(dim) is not int or not 0 <= dim <= _LARGEST_DIM for dim in dims):
            raise _UnknownCostError
        return tuple(dims)

    def width(self, position: int) -> int:
        """Bytes of a tensor's element."""
        name = self.types[position] if position < len(self.types) else None
        if not isinstance(name, str) or name not in ATEN_TYPES:
            raise _UnknownCostError
        return ATEN_TYPES[name].bytes

    def bytes(self, *positions: int) -> int:
        """Bytes of tensors."""
        return sum(prod(self.shape(position)) * self.width(position) for position in positions)

    def optional(self, position: int) -> int:
        """Bytes of an optional tensor; 0 if it is left out."""
        has = position < len(self.dims) and self.dims[position]
        return self.bytes(position) if has else 0

    def text(self, position: int) -> str:
        """A recorded value as text; empty if there is none."""
        value = self.concrete[position] if position < len(self.concrete) else ""
        return value.strip() if isinstance(value, str) else ""

    def integers(self, position: int, number: int) -> list[int]:
        """A recorded list of `number` integers; a single one is repeated."""
        text = self.text(position)
        if not re.fullmatch(r"\[?(?:\s*\d{1,9}\s*,)*\s*\d{1,9}\s*\]?", text):
            raise _UnknownCostError
        values = [int(digits) for digits in re.findall(r"\d+", text)]
        if len(values) == 1:
            values *= number
        if len(values) != number:
            raise _UnknownCostError
        return values

    def flags(self, position: int, number: int) -> list[bool]:
        """Recorded booleans."""
        values = re.findall(r"true|false|\b[01]\b", self.text(position).lower())
        if len(values) != number:
            raise _UnknownCostError
        return [value in ("true", "1") for value in values]


_Cost = tuple[int, int]


def has_cost(op: str) -> bool:
    """Whether the cost of an op can be calculated."""
    return op in _OPS


def aten_cost(
    op: str,
    dims: Sequence[Sequence[int]],
    types: Sequence[str],
    concrete: Sequence[str] = (),
    causal: Causal = "half",
) -> tuple[float, float] | None:
    """FLOPs and minimum bytes moved by one execution; None if op, shapes or types are unknown or do not fit.

    `dims`, `types` and `concrete` are a trace's "Input Dims", "Input type" and "Concrete Inputs"; convolutions need the
    last for their strides. A multiplication and an addition are two FLOPs. Only products count, not the additions,
    scalings or activations done with them. Bytes count every operand read once and every result written once. Causal
    attention counts the products that its mask keeps, the diagonal by half: half of them all for as many queries as
    keys (Dao, "FlashAttention-2", 2023, section 4.1), or all of them if `causal` is `full` or if it is not recorded
    whether there is a mask. The backward pass counts the recomputed scores. Terms added to the product (bias, mask)
    count as read; saved statistics are left out.
    """
    compute = _OPS.get(op) if isinstance(op, str) else None
    arguments = (dims, types, concrete)
    if compute is None or not all(isinstance(argument, list | tuple) for argument in arguments):
        return None
    try:
        flops, moved = compute(_Call(*arguments, causal))
    except _UnknownCostError:
        return None
    return float(flops), float(moved)


def _product(call: _Call, left: int, batch: int = 0, width: int = 0) -> _Cost:
    """A matrix product, its first operand at `left`, with `batch` leading dimensions; `width` is that of the result."""
    a, b = call.shape(left, 2 + batch), call.shape(left + 1, 2 + batch)
    if a[-1] != b[-2] or a[:batch] != b[:batch]:
        raise _UnknownCostError
    results = prod(a[:-1]) * b[-1]
    return 2 * results * a[-1], call.bytes(left, left + 1) + results * (width or call.width(left))


def _added(call: _Call, batch: int = 0) -> _Cost:
    """A matrix product whose first argument is the matrix added to it."""
    flops, moved = _product(call, 1, batch)
    return flops, moved + call.bytes(0)


def _scaled_mm(call: _Call) -> _Cost:
    """Arguments are self, mat2, scale_a, scale_b, bias, scale_result, out_dtype; the last is the result's type."""
    number = call.text(6)
    width = _SCALAR_TYPES.get(int(number), 0) if re.fullmatch(r"\d{1,3}", number) else 0
    flops, moved = _product(call, 0, width=width)
    return flops, moved + sum(call.optional(position) for position in range(2, 6))


def _dot(call: _Call) -> _Cost:
    (length,), (other,) = call.shape(0, 1), call.shape(1, 1)
    if length != other:
        raise _UnknownCostError
    return 2 * length, call.bytes(0, 1) + call.width(0)


def _matrix_vector(call: _Call, matrix: int) -> _Cost:
    (rows, columns), (length,) = call.shape(matrix, 2), call.shape(matrix + 1, 1)
    if columns != length:
        raise _UnknownCostError
    return 2 * rows * columns, call.bytes(*range(matrix + 2)) + rows * call.width(matrix)


def _linear(call: _Call, at: int = 1) -> _Cost:
    """The product of x[..., K] and the transposed weight[N, K], and a bias; the weight, `at`, may be a vector."""
    x, weight = call.shape(0), call.shape(at, 1, 2)
    if not x or x[-1] != weight[-1]:
        raise _UnknownCostError
    results = prod(x[:-1]) * prod(weight[:-1])
    return 2 * results * x[-1], call.bytes(0, at) + results * call.width(0) + call.optional(at + 1)


@dataclass(frozen=True, slots=True)
class _Layout:
    """Positions of a convolution's arguments; -1 for those that it does not take."""

    stride: int
    padding: int
    dilation: int
    groups: int
    bias: int = 2
    transposed: int = -1
    output_padding: int = -1
    is_transposed: bool = False


def _convolution(call: _Call, layout: _Layout) -> _Cost:
    """A convolution: each output element, or each input element if transposed, uses the whole kernel once."""
    kernel = call.shape(1, 3, 4, 5)
    image = call.shape(0, len(kernel), len(kernel) - 1)
    if len(image) < len(kernel):
        image = (1, *image)
    result, flops = _convolved(call, layout, image, kernel)
    moved = call.bytes(0, 1) + prod(result) * call.width(0)
    return flops, moved + (call.optional(layout.bias) if layout.bias >= 0 else 0)


def _convolved(call: _Call, layout: _Layout, image: tuple[int, ...], kernel: tuple[int, ...]) -> tuple[list[int], int]:
    """Shape of a convolution's result, and FLOPs."""
    spatial = len(kernel) - 2
    is_transposed = call.flags(layout.transposed, 1)[0] if layout.transposed >= 0 else layout.is_transposed
    (groups,) = call.integers(layout.groups, 1)
    strides, dilations = call.integers(layout.stride, spatial), call.integers(layout.dilation, spatial)
    spans = [dilation * (size - 1) + 1 for dilation, size in zip(dilations, kernel[2:], strict=True)]
    if not groups or 0 in strides or 0 in dilations or 0 in kernel:
        raise _UnknownCostError
    paddings = call.integers(layout.padding, spatial)
    if is_transposed:
        extra = call.integers(layout.output_padding, spatial)
        sizes = [
            (size - 1) * stride - 2 * padding + span + more
            for size, stride, padding, span, more in zip(image[2:], strides, paddings, spans, extra, strict=True)
        ]
        channels, expected, work = kernel[1] * groups, kernel[0], image[2:]
    else:
        sizes = [
            (size + 2 * padding - span) // stride + 1
            for size, stride, padding, span in zip(image[2:], strides, paddings, spans, strict=True)
        ]
        channels, expected, work = kernel[0], kernel[1] * groups, tuple(sizes)
    if image[1] != expected or channels % groups or any(size < 1 for size in sizes):
        raise _UnknownCostError
    return [image[0], channels, *sizes], 2 * image[0] * prod(work) * prod(kernel)


def _convolution_backward(call: _Call) -> _Cost:
    """Arguments begin with grad, input, weight, bias_sizes; each requested gradient is as much work as forward."""
    kernel = call.shape(2, 3, 4, 5)
    image = call.shape(1, len(kernel))
    layout = _Layout(stride=4, padding=5, dilation=6, transposed=7, output_padding=8, groups=9)
    result, flops = _convolved(call, layout, image, kernel)
    if list(call.shape(0)) != result:
        raise _UnknownCostError
    of_input, of_weight, of_bias = call.flags(10, 3)
    moved = call.bytes(0) + result[1] * call.width(2) * of_bias
    moved += (of_input + of_weight) * call.bytes(1, 2)  # each is read for the other's gradient, or written as its own
    return flops * (of_input + of_weight), moved


def _attention(call: _Call, *, causal: int, bias: int = -1, ends: int = -1, to_last: bool = False) -> _Cost:
    """Scores and their product with the values; the argument at `causal` tells whether the mask is causal.

    Ops that take the ends of packed sequences (arguments at `ends` and after) have the heads after the sequence. If
    sequences are packed, the cost does not follow from the shapes.
    """
    if ends >= 0 and any(call.dims[ends : ends + 2]):
        raise _UnknownCostError
    batch, heads, queries, keys, width, value_width = _attended(call, 0, heads_last=ends >= 0)
    moved = call.bytes(0, 1, 2) + batch * heads * queries * value_width * call.width(0)
    read = call.optional(bias) if bias >= 0 else 0
    pairs = _pairs(call, causal, queries, keys, to_last=to_last)
    return round(2 * batch * heads * pairs * (width + value_width)), moved + read


def _attention_backward(call: _Call, *, causal: int, out: int = 4, bias: int = -1) -> _Cost:
    """Five products: the recomputed scores, and the gradients of scores, values, queries and keys."""
    batch, heads, queries, keys, width, value_width = _attended(call, 1)
    moved = call.bytes(0, out) + 2 * call.bytes(1, 2, 3)
    read = call.optional(bias) if bias >= 0 else 0
    pairs = _pairs(call, causal, queries, keys)
    return round(2 * batch * heads * pairs * (3 * width + 2 * value_width)), moved + read


def _pairs(call: _Call, causal: int, queries: int, keys: int, *, to_last: bool = False) -> float:
    """How many pairs of a query and a key are multiplied; the diagonal of a causal mask counts by half.

    A causal mask begins at the first query and key, or if `to_last`, ends at the last of both.
    """
    kind = call.text(causal).lower()
    if call.causal == "full" or kind not in ("true", "1", "2"):
        return queries * keys
    least = min(queries, keys)
    beside = queries - least if not (to_last or kind == "2") else 0  # queries after the last key, which use all keys
    before = keys - least if to_last or kind == "2" else 0  # keys before the first query, which all queries use
    return least * least / 2 + beside * keys + before * queries


def _attended(call: _Call, query: int, *, heads_last: bool = False) -> tuple[int, int, int, int, int, int]:
    """Batch, heads, queries, keys, and the widths of a key and a value."""
    q, k, v = (call.shape(position, 4) for position in (query, query + 1, query + 2))
    if heads_last:
        q, k, v = ((shape[0], shape[2], shape[1], shape[3]) for shape in (q, k, v))
    fits = q[0] == k[0] == v[0] and k[1:3] == v[1:3] and q[3] == k[3]
    if not fits or not k[1] or q[1] % k[1]:
        raise _UnknownCostError
    return q[0], q[1], q[2], k[2], q[3], v[3]


_PLAIN = _Layout(stride=3, padding=4, dilation=5, groups=6)
_GENERAL = _Layout(stride=3, padding=4, dilation=5, transposed=6, output_padding=7, groups=8)
_LIBRARY = _Layout(padding=3, stride=4, dilation=5, groups=6)
_CUDNN = _Layout(padding=2, stride=3, dilation=4, groups=5, bias=-1)
_CUDNN_TRANSPOSED = _Layout(padding=2, output_padding=3, stride=4, dilation=5, groups=6, bias=-1, is_transposed=True)
_TRANSPOSED = _Layout(stride=3, padding=4, output_padding=5, groups=6, dilation=7, is_transposed=True)

_OPS: dict[str, Callable[[_Call], _Cost]] = {
    "aten::mm": lambda call: _product(call, 0),
    "aten::_int_mm": lambda call: _product(call, 0, width=4),
    "aten::_scaled_mm": _scaled_mm,
    "aten::addmm": _added,
    "aten::_addmm_activation": _added,
    "aten::bmm": lambda call: _product(call, 0, 1),
    "aten::baddbmm": lambda call: _added(call, 1),
    "aten::dot": _dot,
    "aten::mv": lambda call: _matrix_vector(call, 0),
    "aten::addmv": lambda call: _matrix_vector(call, 1),
    "aten::linear": _linear,
    "mkl::_mkl_linear": lambda call: _linear(call, 2),  # the packed weight comes before the plain one
    **{f"aten::conv{n}d": lambda call: _convolution(call, _PLAIN) for n in (1, 2, 3)},
    **{f"aten::conv_transpose{n}d": lambda call: _convolution(call, _TRANSPOSED) for n in (1, 2, 3)},
    "aten::convolution": lambda call: _convolution(call, _GENERAL),
    "aten::_convolution": lambda call: _convolution(call, _GENERAL),
    "aten::convolution_overrideable": lambda call: _convolution(call, _GENERAL),
    "aten::mkldnn_convolution": lambda call: _convolution(call, _LIBRARY),
    "aten::miopen_convolution": lambda call: _convolution(call, _LIBRARY),
    "aten::cudnn_convolution": lambda call: _convolution(call, _CUDNN),
    "aten::cudnn_convolution_transpose": lambda call: _convolution(call, _CUDNN_TRANSPOSED),
    "aten::convolution_backward": _convolution_backward,
    "aten::_scaled_dot_product_flash_attention": lambda call: _attention(call, causal=4),
    "aten::_scaled_dot_product_flash_attention_for_cpu": lambda call: _attention(call, causal=4, bias=5),
    "aten::_scaled_dot_product_efficient_attention": lambda call: _attention(call, causal=6, bias=3),
    "aten::_scaled_dot_product_cudnn_attention": lambda call: _attention(call, causal=6, bias=3),
    "aten::_flash_attention_forward": lambda call: _attention(call, causal=8, ends=3, to_last=True),
    "aten::_efficient_attention_forward": lambda call: _attention(call, causal=9, bias=3, ends=4),
    "aten::_scaled_dot_product_flash_attention_backward": lambda call: _attention_backward(call, causal=11),
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": lambda call: _attention_backward(
        call, causal=7, bias=8
    ),
    "aten::_scaled_dot_product_efficient_attention_backward": lambda call: _attention_backward(
        call, causal=11, out=5, bias=4
    ),
    "aten::_scaled_dot_product_cudnn_attention_backward": lambda call: _attention_backward(call, causal=14, bias=8),
}


_FACTORS = {
    **dict.fromkeys(("aten::mm", "aten::_int_mm", "aten::_scaled_mm", "aten::bmm", "aten::mv", "aten::linear"), (0, 1)),
    **dict.fromkeys(("aten::addmm", "aten::_addmm_activation", "aten::baddbmm", "aten::addmv"), (1, 2)),
    "mkl::_mkl_linear": (0, 2),
}
"""The arguments that are the factors of a product."""


def aten_gemm(op: str, dims: Sequence[Any], types: Sequence[Any], strides: Any) -> Gemm | None:
    """The product that an op computes, whose shapes must fit (as `aten_cost` checks); None if it is no product.

    `dims`, `types` and `strides` are a trace's "Input Dims", "Input type" and "Input Strides".
    """
    factors = _FACTORS.get(op)
    if factors is None:
        return None
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
