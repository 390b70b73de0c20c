"""The event table: one row for each step, scope, op, kernel, copy and runtime call of a trace; times in int64 ns.

Column          Meaning
event_id        the row's number; the index of the frame
parent_id       the row that encloses it on its thread; for a kernel or a copy, the row that launched it
kind            step, scope, op, kernel, copy (memory copies and sets), runtime (calls of the device's runtime),
                memory (allocations and frees, on the thread that made them, named by their device)
name            the profiler's name for it
op, opcode      the HLO instruction or framework op that it is or that launched it; the HLO opcode
category, rule  gemm, convolution, attention, communication, reduction, memory, elementwise, ...; the rule that matched
device, track   where it ran: `cpu`, `gpu:0`, or `cpu:0` if a CPU is divided into several; the thread or stream
ts_ns, dur_ns   begin and duration
self_ns         its own time: without enclosed rows, with the part of its asynchronous tail in which nothing else ran
busy_ns         its share of the device's busy time: each moment is divided equally among the rows running themselves
end_ns          when an asynchronous op was complete, if the profiler marks it
step            the profiled step, from 0
phase           forward, backward (the reverse pass of automatic differentiation), remat (forward work done again in it)
scope, leaf     path of the scopes around it, outermost first; the scope to which it is counted
scope_id        the occurrence of that scope: the row that opened it, or the number of its path and run
members         paths of the scopes of all instructions of a fusion, separated by `;`; empty if nothing can be fused
purity          share of a fusion's instructions that belong to its own leaf; 1 if nothing is fused
program         the compiled module; program_id is the profiler's number of it, run the number of its execution
correlation     links a kernel to its launch; external_id links either to the op, sequence_nr backward to forward
shapes          types and shapes of the inputs of the op that it is or that launched it: `bf16[64,128] f32[128]`
gemm            the matrix product that it computes: `bf16 m=64 n=32 k=128 batch=1 NT`; for its letters see `Gemm`
launch          a kernel's launch: `grid=132,1,1 block=384,1,1 registers=168 shared=231424 occupancy=25%`
graph           how the op of what a graph launched was found in the capture: by the node's number, or by order
collective      all_reduce, all_gather, ... for a row that is or launches a collective, if the profiler states it
process_group   the collective's process group with its ranks; group_size is their number, message_bytes the data of
                this rank, collective_nr the collective's number in the group
waiting_ns      for a collective: how much of its time it waited for other ranks or devices to begin, if that is known
flops, bytes    work of one execution, if it follows from the shapes
size            bytes that a memory event allocates, negative if it frees them; address is where, allocated and
                reserved are the totals of its device after it; only traces with memory events have these columns
source          file and line

"None" is -1 in integer columns, NaN in float columns and the empty text in text columns; in Parquet it is null.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

TEXTS = (
    "kind",
    "name",
    "op",
    "opcode",
    "category",
    "rule",
    "device",
    "track",
    "phase",
    "scope",
    "leaf",
    "members",
    "program",
    "source",
    "shapes",
    "gemm",
    "launch",
    "graph",
    "collective",
    "process_group",
)
INTEGERS = (
    "parent_id",
    "scope_id",
    "ts_ns",
    "dur_ns",
    "self_ns",
    "busy_ns",
    "end_ns",
    "step",
    "program_id",
    "run",
    "correlation",
    "external_id",
    "sequence_nr",
    "group_size",
    "message_bytes",
    "collective_nr",
    "waiting_ns",
)
FLOATS = ("purity", "flops", "bytes")
MEMORY = ("size", "address", "allocated", "reserved")
"""Float columns of traces with memory events."""
ON_DEVICE = ("kernel", "copy")
"""Kinds of rows that an accelerator executes."""


def frame(columns: Mapping[str, Any], rows: int) -> pd.DataFrame:
    """A table of `rows` rows with all columns; columns that are not given are empty."""
    made: dict[str, Any] = {}
    for name in TEXTS:
        made[name] = columns[name] if name in columns else constant("", rows)
    for name in INTEGERS:
        made[name] = columns[name] if name in columns else np.full(rows, -1)
    for name in FLOATS:
        made[name] = columns[name] if name in columns else np.full(rows, np.nan)
    made |= {name: columns[name] for name in MEMORY if name in columns}
    return pd.DataFrame(made, index=pd.RangeIndex(rows, name="event_id"), copy=False)


class Kinds:
    """The rows of each kind; `work` are those that an accelerator executed, or if there are none, the host's ops."""

    def __init__(self, events: pd.DataFrame) -> None:
        kinds = events["kind"]
        self.op, self.scope, self.step, self.runtime = (
            (kinds == name).to_numpy() for name in ("op", "scope", "step", "runtime")
        )
        self.on_device = kinds.isin(ON_DEVICE).to_numpy()
        self.work = self.on_device if self.on_device.any() else self.op


class Texts:
    """Numbered texts, each stored once; 0 is the empty text, which means "none"."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {"": 0}
        self._values: list[str] = []

    def code(self, value: str) -> int:
        """The number of a text."""
        return self._codes.setdefault(value, len(self._codes))

    def values(self) -> list[str]:
        """The texts in the order of their numbers."""
        if len(self._values) != len(self._codes):
            self._values = list(self._codes)
        return self._values

    def codes(self, numbers: np.ndarray, names: Mapping[int, str]) -> np.ndarray:
        """The texts that `names` gives for other numbers, as numbers of texts; 0 for a number without a name."""
        inverse, unique = pd.factorize(numbers, sort=True)
        own: np.ndarray = np.array([self.code(names.get(number, "")) for number in unique.tolist()], np.int32)[inverse]
        return own

    def matching(self, codes: np.ndarray, test: Callable[[str], Any]) -> np.ndarray:
        """Which of these texts pass a test."""
        values, passes = self.values(), np.zeros(len(self._codes), bool)
        for code in _occurring(codes):
            passes[code] = bool(test(values[code]))
        passed: np.ndarray = passes[codes]
        return passed

    def translated(self, codes: np.ndarray, function: Callable[[str], int]) -> np.ndarray:
        """The number that a function returns for each text."""
        values, given = self.values(), np.zeros(len(self._codes), np.int64)
        for code in _occurring(codes):
            given[code] = function(values[code])
        made: np.ndarray = given[codes]
        return made

    def column(self, codes: np.ndarray) -> pd.Categorical:
        """A categorical column whose categories are only the texts that occur in it."""
        values, places = self.values(), np.zeros(len(self._codes), np.int32)
        occurring = _occurring(codes)
        places[occurring] = np.arange(len(occurring))
        return words(places[codes], [values[code] for code in occurring])


def _occurring(codes: np.ndarray) -> list[int]:
    """The numbers of texts that occur, in ascending order."""
    occurring: list[int] = np.flatnonzero(np.bincount(codes)).tolist()
    return occurring


def grouped(*columns: Any, ordered: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """The group of each row, made of rows that are equal in all these integer columns, and the first row of each group.

    Groups are numbered as they occur; if `ordered`, they are sorted by their values, by the first column first.
    """
    group = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        number, unique = pd.factorize(np.asarray(column), sort=ordered)
        group = pd.factorize(group * len(unique) + number, sort=ordered)[0]
    first = np.empty(int(group.max(initial=-1)) + 1, np.int64)
    first[group[::-1]] = np.arange(len(group))[::-1]
    return group, first


def words(codes: np.ndarray, values: Sequence[str]) -> pd.Categorical:
    """A categorical column of indices into `values`; equal texts are merged."""
    unique = list(dict.fromkeys(values))
    if len(unique) != len(values):
        places = {value: place for place, value in enumerate(unique)}
        codes = np.array([places[value] for value in values], np.int32)[codes]
    return pd.Categorical.from_codes(codes.astype(np.int32, copy=False), pd.Index(unique, dtype=object))


def constant(text: str, rows: int) -> pd.Categorical:
    """A categorical column with the same text in every row."""
    return words(np.zeros(rows, np.int32), [text])


def codes(column: pd.Series) -> np.ndarray:
    """The category numbers of a text column, as int32."""
    numbers: np.ndarray = column.cat.codes.to_numpy()
    return numbers.astype(np.int32)


def matching(column: pd.Series, test: Callable[[str], object]) -> np.ndarray:
    """Which rows of a text column pass a test of their text; each text is tested once."""
    passes: np.ndarray = np.array([bool(test(text)) for text in column.cat.categories], bool)[codes(column)]
    return passes


def texts_of(column: pd.Series, rows: np.ndarray) -> np.ndarray:
    """The texts of a text column in some rows; empty for row -1."""
    return np.where(rows < 0, "", column.array.take(rows, allow_fill=True).astype(object))


def with_missing(events: pd.DataFrame) -> pd.DataFrame:
    """The table for further analysis by the user: values that mean "none" become missing values."""
    texts = {name: events[name].cat.remove_categories([""]) for name in TEXTS if "" in events[name].cat.categories}
    numbers = {name: events[name].astype("Int64").mask(events[name] == -1) for name in INTEGERS}
    return events.assign(**texts, **numbers)
