"""Shapes, matrix products and launches as text, in one notation for every framework.

`bf16[64,128] f32[128]` are the shapes of an op's inputs, as HLO writes them. A product is C[M, N] = A[M, K] · B[K, N],
in a batch of any number. `grid=132,1,1 block=384,1,1 registers=168 shared=231424 occupancy=25%` is a kernel's launch:
registers of a thread, shared memory of a block in bytes, and the profiler's estimate of the occupancy.
"""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

_TEXT = re.compile(r"(?P<dtype>\S+) m=(?P<m>\d+) n=(?P<n>\d+) k=(?P<k>\d+) batch=(?P<batch>\d+) (?P<layout>[NT-]{2})")


class Gemm(NamedTuple):
    """One product: sizes, the type of its factors, and how these lie in memory.

    `layout` has a letter each for A and B: N if the elements of a row are adjacent, T if those of a column are, as if
    the operand were stored transposed, `-` if that is unknown or neither. cuBLAS, which counts by columns, computes
    Cᵀ = Bᵀ · Aᵀ, so its kernels have the same letters in reverse order.
    """

    dtype: str
    m: int
    n: int
    k: int
    batch: int
    layout: str

    def __str__(self) -> str:
        return f"{self.dtype} m={self.m} n={self.n} k={self.k} batch={self.batch} {self.layout}"


def parse(text: str) -> Gemm | None:
    """Return the product that a text of the event table describes, None if it is no such text."""
    match = _TEXT.fullmatch(text)
    if not match:
        return None
    found = match.groupdict()
    m, n, k, batch = (int(found[name]) for name in ("m", "n", "k", "batch"))
    return Gemm(found["dtype"], m, n, k, batch, found["layout"])


def dtype(left: str, right: str) -> str:
    """The type of both factors, or of each if they differ."""
    return left if left == right else f"{left}/{right}"


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


_PAIR = re.compile(r"(\w+):(\d[\d,.]{0,40})")
_OCCUPANCY = re.compile(r"\d{1,3}(\.\d+)?")
_SHARED = ("static_shared", "dynamic_shared", "group_mem")
"""Parts of the shared memory, by their names in XLA's details of a kernel; AMD's is in one part."""


def launch(*, grid: Any, block: Any, registers: Any = None, shared: Any = None, occupancy: Any = None) -> str:
    """The text of a launch; None is left out, and so is an occupancy of 0, which stands for an unknown one."""
    given = {"grid": grid, "block": block, "registers": registers, "shared": shared}
    texts = [f"{name}={value}" for name, value in given.items() if value is not None]
    return " ".join([*texts, f"occupancy={occupancy}%"] if occupancy else texts)


def of_xla(details: str) -> str:
    """The text of a launch that XLA's profiler describes: `regs:32 static_shared:0 grid:1,1,1 block:128,1,1`."""
    found = dict(_PAIR.findall(details))
    occupancy = _OCCUPANCY.fullmatch(found.get("occ_pct", ""))
    shared = [int(found[name]) for name in _SHARED if found.get(name, "").isdigit()]
    return launch(
        grid=found.get("grid"),
        block=found.get("block"),
        registers=found.get("regs"),
        shared=sum(shared) if shared else None,
        occupancy=f"{float(occupancy[0]):g}" if occupancy and float(occupancy[0]) else None,
    )


_KINDS = ("reduce_scatter", "all_reduce", "all_gather", "all_to_all", "collective_permute", "broadcast", "barrier")
_SIMPLE = ("reduce", "gather", "scatter", "send_recv", "send", "recv")
COLLECTIVE_TEXTS, COLLECTIVE_INTEGERS = (
    ("collective", "process_group"),
    ("group_size", "message_bytes", "collective_nr"),
)
"""The columns of the event table that describe a collective."""


def collective_kind(text: str) -> str:
    """The collective that a name of an op, an instruction or a kernel contains, in PyTorch's spelling; or empty."""
    letters = re.sub(r"[^a-z]", "", text.lower())
    return next((kind for kind in (*_KINDS, *_SIMPLE) if kind.replace("_", "") in letters), "")
