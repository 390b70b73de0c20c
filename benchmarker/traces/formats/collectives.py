"""The collectives in a trace of PyTorch: what its c10d states of them, and one name for each kind of collective.

The fields of an event: libkineto's output_json.cpp. Only c10d's own op and its kernels have them, and in older versions
none. Each backend writes an annotation, such as `nccl:all_reduce`, with the shapes of its inputs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod
from typing import Any

import msgspec
import numpy as np

from benchmarker.traces.events import Texts
from benchmarker.traces.formats.json_events import Args, integers, text_of
from benchmarker.traces.formats.notation import ATEN_TYPES

ANNOTATION = re.compile(r"(nccl|rccl|gloo|ucc|xccl|mpi):")
"""Annotations made by PyTorch's own collectives: they are ops, not scopes of the program."""
ON_CPU = re.compile(r"(gloo|ucc|mpi):")
"""Those of backends on a CPU: they are transfers."""
_KINDS = ("reduce_scatter", "all_reduce", "all_gather", "all_to_all", "collective_permute", "broadcast", "barrier")
_SIMPLE = ("reduce", "gather", "scatter", "send_recv", "send", "recv")
_BYTES = {
    "Byte": 1,
    "Char": 1,
    "Bool": 1,
    "QInt8": 1,
    "QUInt8": 1,
    "Short": 2,
    "Half": 2,
    "BFloat16": 2,
    "Int": 4,
    "Float": 4,
    "QInt32": 4,
    "Long": 8,
    "Double": 8,
    "ComplexHalf": 4,
    "ComplexFloat": 8,
    "ComplexDouble": 16,
}
"""Bytes of an element, by the type's name in c10::toString(ScalarType)."""
_FLOAT8 = "Float8_"
TEXTS, INTEGERS = ("collective", "process_group"), ("group_size", "message_bytes", "collective_nr")
"""The columns of the event table that describe a collective."""


def kind_of(text: str) -> str:
    """The collective that a name of an op, an instruction or a kernel contains, in PyTorch's spelling; or empty."""
    letters = re.sub(r"[^a-z]", "", text.lower())
    return next((kind for kind in (*_KINDS, *_SIMPLE) if kind.replace("_", "") in letters), "")


def columns(name: np.ndarray, args: Sequence[Args], texts: Texts) -> dict[str, np.ndarray]:
    """The columns of the event table about collectives, for events of which the numbers of their names are given."""
    rows = len(args)
    kind, group = np.zeros(rows, np.int32), np.zeros(rows, np.int32)
    numbers = {name: np.full(rows, -1) for name in INTEGERS}
    stated = [row for row, each in enumerate(args) if each.collective is not None]
    for row in stated:
        each = args[row]
        stated_kind = text_of(each.collective)
        kind[row] = texts.code(kind_of(stated_kind) or stated_kind)
        group[row] = texts.code(" ".join(text_of(part) for part in (each.group, each.group_ranks) if part is not None))
    if stated:
        given = [args[row] for row in stated]
        numbers["group_size"][stated] = integers([each.group_size for each in given])
        numbers["collective_nr"][stated] = integers([each.collective_nr for each in given])
        elements = integers([each.message for each in given])
        size = np.array([_element_bytes(text_of(each.element)) for each in given])
        numbers["message_bytes"][stated] = np.where((elements >= 0) & (size > 0), elements * size, -1)
    for row in np.flatnonzero(texts.matching(name, ANNOTATION.match)).tolist():
        kind[row] = texts.code(kind_of(texts.values()[name[row]]))
        numbers["message_bytes"][row] = _input_bytes(args[row])
    return {"collective": kind, "process_group": group, **numbers}


def _element_bytes(name: str) -> int:
    return 1 if name.startswith(_FLOAT8) else _BYTES.get(name, 0)


def _input_bytes(args: Args) -> int:
    """Bytes of all inputs of an annotation; -1 if they are not recorded."""
    try:
        dims, types = (msgspec.json.decode(part or b"[]") for part in (args.dims, args.types))
        return sum(_tensor_bytes(shape, name) for shape, name in zip(dims, types, strict=True)) or -1
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError, ValueError):
        return -1


def _tensor_bytes(shape: Any, name: Any) -> int:
    return int(prod(shape)) * (ATEN_TYPES[name].bytes if name in ATEN_TYPES else 0) if shape else 0
