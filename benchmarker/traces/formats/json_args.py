"""What the arguments of a JSON trace's events say of ops, kernels and collectives: shapes, cost, launch, messages.

The fields of a collective of PyTorch: libkineto's output_json.cpp. Only c10d's own op and its kernels have them, and in
older versions none. Each backend writes an annotation, such as `nccl:all_reduce`, with the shapes of its inputs.
"""

import re
from collections.abc import Sequence
from math import prod
from typing import Any

import msgspec
import numpy as np

from benchmarker.traces.events import Texts
from benchmarker.traces.formats.aten_cost import Causal, aten_cost, aten_gemm, has_cost
from benchmarker.traces.formats.json_events import NOT_GIVEN, Args, integers, text_of
from benchmarker.traces.formats.notation import ATEN_TYPES, COLLECTIVE_INTEGERS, aten_inputs, collective_kind, launch

_OTHER: dict[Causal, Causal] = {"half": "full", "full": "half"}
_UNKNOWN = (float("nan"), float("nan"), 0)
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_joined = b";".join
"""One key of several values, which are faster to look up together."""
_TRIPLE = re.compile(r"\[\d{1,10}(,\d{1,10}){0,2}\]")


class Described:
    """Descriptions of the events read so far; equal arguments are interpreted once.

    `has_causal` states whether an op's FLOPs depend on how those of causal attention are counted.
    """

    def __init__(self, interned: Texts, causal: Causal) -> None:
        self.has_causal = False
        self._interned, self._causal = interned, causal
        self._shapes: dict[Any, int] = {}
        self._texts = [0]
        self._launches: dict[Any, int] = {}
        self._costs: dict[Any, tuple[float, float, int]] = {}

    def columns(self, name: np.ndarray, args: list[Args]) -> dict[str, np.ndarray]:
        """Columns of events, given the numbers of their names; texts are numbers too."""
        shapes, launches = [0] * len(args), [0] * len(args)
        known = self._shapes.get
        for row, each in enumerate(args):
            if each.dims is not NOT_GIVEN:
                number = known(_joined((each.dims, each.types)))
                shapes[row] = self._new_shapes(each) if number is None else number
            elif each.grid is not NOT_GIVEN:
                launches[row] = self._launch(each)
        number_of_shapes = np.array(shapes, np.int32)
        costs, gemm = np.full((2, len(args)), np.nan), np.zeros(len(args), np.int32)
        costing = np.flatnonzero(self._interned.matching(name, has_cost) & (number_of_shapes > 0))
        if len(costing):
            rows = zip(costing.tolist(), name[costing].tolist(), strict=True)
            found = [self._cost(args[row], code, shapes[row]) for row, code in rows]
            costs[0, costing], costs[1, costing], gemm[costing] = zip(*found, strict=True)
        texts = np.array(self._texts, np.int32)[number_of_shapes]
        return {
            "shapes": texts,
            "gemm": gemm,
            "launch": np.array(launches, np.int32),
            "flops": costs[0],
            "bytes": costs[1],
        }

    def _new_shapes(self, args: Args) -> int:
        """A number for shapes and types that were not seen before."""
        try:
            text = aten_inputs(*(msgspec.json.decode(bytes(part) or b"[]") for part in (args.dims, args.types)))
        except _UNREADABLE:
            text = ""
        number = self._shapes[_joined((args.dims, args.types))] = len(self._texts)
        self._texts.append(self._interned.code(text))
        return number

    def _launch(self, args: Args) -> int:
        """The text of a kernel's launch."""
        key = (_joined((args.grid, args.block)), args.registers, args.shared, args.occupancy)
        try:
            known = self._launches.get(key)
        except TypeError:  # a value is a list or an object
            return 0
        if known is None:
            registers, shared, occupancy = (value if type(value) is int else None for value in key[1:])
            grid, block = _three(bytes(args.grid)), _three(bytes(args.block))
            text = launch(grid=grid, block=block, registers=registers, shared=shared, occupancy=occupancy)
            known = self._launches[key] = self._interned.code(text)
        return known

    def _cost(self, args: Args, name: int, shapes: int) -> tuple[float, float, int]:
        """FLOPs and bytes of an op, from the shapes of its inputs, and the text of the matrix product that it is."""
        key = (name, shapes, _joined((args.concrete, args.strides)))
        found = self._costs.get(key)
        if found is None:
            found = self._costs[key] = self._new_cost(self._interned.values()[name], args)
        return found

    def _new_cost(self, op: str, args: Args) -> tuple[float, float, int]:
        try:
            dims, types, concrete, strides = (
                msgspec.json.decode(bytes(part) or b"[]")
                for part in (args.dims, args.types, args.concrete, args.strides)
            )
        except _UNREADABLE:
            return _UNKNOWN
        if op != _PACKED and _has_sparse(dims, strides):
            return _UNKNOWN
        found, other = (aten_cost(op, dims, types, concrete, each) for each in (self._causal, _OTHER[self._causal]))
        self.has_causal |= found != other
        gemm = aten_gemm(op, dims, types, strides) if found else None
        return (*found, self._interned.code(str(gemm)) if gemm else 0) if found else _UNKNOWN


_PACKED = "mkl::_mkl_linear"
"""An op with an input that is not sparse though no strides are recorded for it: the packed weight."""


def _has_sparse(dims: Any, strides: Any) -> bool:
    """Whether an input is sparse, so that its shape does not determine the work: PyTorch records no strides for it."""
    return (
        isinstance(dims, list)
        and isinstance(strides, list)
        and any(
            isinstance(shape, list) and shape and type(shape[0]) is int and not stride
            for shape, stride in zip(dims, strides, strict=False)
        )
    )


def _three(part: bytes) -> str | None:
    """A grid or block, such as `[132, 1, 1]`, as `132,1,1`; None if it is anything else."""
    text = "".join(part.decode("latin-1").split())
    return text[1:-1] if _TRIPLE.fullmatch(text) else None


ANNOTATION = re.compile(r"(nccl|rccl|gloo|ucc|xccl|mpi):")
"""Annotations made by PyTorch's own collectives: they are ops, not scopes of the program."""
_BYTES = {
    name: size
    for size, names in {
        1: "Byte Char Bool QInt8 QUInt8",
        2: "Short Half BFloat16",
        4: "Int Float QInt32 ComplexHalf",
        8: "Long Double ComplexFloat",
        16: "ComplexDouble",
    }.items()
    for name in names.split()
}
"""Bytes of an element, by the type's name in c10::toString(ScalarType)."""
_FLOAT8 = "Float8_"


def collective_columns(name: np.ndarray, args: Sequence[Args], texts: Texts) -> dict[str, np.ndarray]:
    """The columns of the event table about collectives, for events of which the numbers of their names are given."""
    rows = len(args)
    kind, group = np.zeros(rows, np.int32), np.zeros(rows, np.int32)
    numbers = {name: np.full(rows, -1) for name in COLLECTIVE_INTEGERS}
    stated = [row for row, each in enumerate(args) if each.collective is not None]
    for row in stated:
        each = args[row]
        stated_kind = text_of(each.collective)
        kind[row] = texts.code(collective_kind(stated_kind) or stated_kind)
        group[row] = texts.code(" ".join(text_of(part) for part in (each.group, each.group_ranks) if part is not None))
    if stated:
        given = [args[row] for row in stated]
        numbers["group_size"][stated] = integers([each.group_size for each in given])
        numbers["collective_nr"][stated] = integers([each.collective_nr for each in given])
        elements = integers([each.message for each in given])
        types = [text_of(each.element) for each in given]
        size = np.array([1 if name.startswith(_FLOAT8) else _BYTES.get(name, 0) for name in types])
        numbers["message_bytes"][stated] = np.where((elements >= 0) & (size > 0), elements * size, -1)
    for row in np.flatnonzero(texts.matching(name, ANNOTATION.match)).tolist():
        kind[row] = texts.code(collective_kind(texts.values()[name[row]]))
        numbers["message_bytes"][row] = _input_bytes(args[row])
    return {"collective": kind, "process_group": group, **numbers}


def _input_bytes(args: Args) -> int:
    """Bytes of all inputs of an annotation; -1 if they are not recorded."""
    try:
        dims, types = (msgspec.json.decode(part or b"[]") for part in (args.dims, args.types))
        return sum(_tensor_bytes(shape, name) for shape, name in zip(dims, types, strict=True)) or -1
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError, ValueError):
        return -1


def _tensor_bytes(shape: Any, name: Any) -> int:
    return int(prod(shape)) * (ATEN_TYPES[name].bytes if name in ATEN_TYPES else 0) if shape else 0
