"""Shapes of an op's inputs as text, in the notation of HLO for every framework: `bf16[64,128] f32[128]`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

_LONGEST_LIST = 8
"""A list of more tensors is given by their number only."""
_LONGEST = 400
"""Characters of a text; the inputs after them are an ellipsis."""
_LIST = "TensorList"


class Type(NamedTuple):
    """The type of a tensor's elements: its name in HLO, and the bytes of an element."""

    name: str
    bytes: int


ATEN_TYPES = {
    "double": Type("f64", 8),
    "float": Type("f32", 4),
    "c10::Half": Type("f16", 2),
    "c10::BFloat16": Type("bf16", 2),
    "c10::complex<double>": Type("c128", 16),
    "c10::complex<float>": Type("c64", 8),
    "c10::complex<c10::Half>": Type("c32", 4),
    "long int": Type("s64", 8),
    "long": Type("s64", 8),
    "long long": Type("s64", 8),
    "int": Type("s32", 4),
    "short int": Type("s16", 2),
    "short": Type("s16", 2),
    "signed char": Type("s8", 1),
    "unsigned char": Type("u8", 1),
    "bool": Type("pred", 1),
    "c10::qint8": Type("s8", 1),
    "c10::quint8": Type("u8", 1),
    "c10::Float8_e4m3fn": Type("f8e4m3fn", 1),
    "c10::Float8_e4m3fnuz": Type("f8e4m3fnuz", 1),
    "c10::Float8_e5m2": Type("f8e5m2", 1),
    "c10::Float8_e5m2fnuz": Type("f8e5m2fnuz", 1),
}
"""Types by their name in a trace of PyTorch."""


def array(dtype: str, dims: Sequence[int]) -> str:
    """One array."""
    return f"{dtype}[{','.join(map(str, dims))}]"


def inputs(arrays: Sequence[str]) -> str:
    """The arrays that an op takes; of very many, the first."""
    text = " ".join(arrays)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST].rpartition(' ')[0]} …"


def group(arrays: Sequence[str]) -> str:
    """A list or tuple of arrays."""
    return f"({','.join(arrays)})" if len(arrays) <= _LONGEST_LIST else f"({len(arrays)} tensors)"


def aten_inputs(dims: Any, types: Any) -> str:
    """The tensors among the inputs of an op of PyTorch, from a trace's "Input Dims" and "Input type".

    Empty if there is none or the lists are damaged. The types of the tensors in a list are not recorded.
    """
    if not (isinstance(dims, list) and isinstance(types, list)):
        return ""
    found = []
    for shape, dtype in zip(dims, types, strict=False):
        if dtype == _LIST and isinstance(shape, list) and all(map(_is_shape, shape)):
            found.append(group([array("", each) for each in shape]))
        elif dtype in ATEN_TYPES if isinstance(dtype, str) else False:
            found.append(array(ATEN_TYPES[dtype].name, shape) if _is_shape(shape) else "?")
        elif _is_shape(shape) and shape:
            found.append(array("?", shape))
    return inputs(found)


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and all(type(each) is int and abs(each) < 1 << 63 for each in value)
