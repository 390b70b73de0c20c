"""The event table: one row for each step, scope, op, kernel, copy and runtime call of a trace; times in int64 ns.

Column          What
event_id        the row's number; the index of the frame
parent_id       the row that encloses it on its thread; of a kernel or a copy, the row that launched it
kind            step, scope, op, kernel, copy (memory copies and sets), runtime (calls of the device's runtime)
name            as the profiler calls it
op, opcode      the HLO instruction, or the op of the framework, that it is or was launched by; the HLO opcode
category, rule  gemm, convolution, attention, communication, reduction, memory, elementwise, ...; the rule that said so
device, track   where it ran: `cpu`, `gpu:0`; the thread or stream
ts_ns, dur_ns   begin and duration
self_ns         its own time: without what it encloses, with that of its asynchronous tail when nothing else ran
busy_ns         its share of the device's busy time: of each moment, an equal part to each row that was running itself
end_ns          when an asynchronous op was complete, where the profiler marks it
step            the profiled step, from 0
phase           forward, backward (the reverse pass of automatic differentiation), remat (forward work done again in it)
scope, leaf     path of the scopes around it, outermost first; the scope that it is counted to
scope_id        the occurrence of that scope: the row that opened it, or the number of its path and run
members         paths of the scopes of all instructions of a fusion, `;` between them; empty where nothing can be fused
purity          share of a fusion's instructions that are of its own leaf; 1 where nothing is fused
program         the compiled module; program_id the profiler's number of it; run its n-th execution
correlation     joins a kernel to its launch; external_id joins either to the op; sequence_nr backward to forward
flops, bytes    work of one execution, where its shapes say it
source          file and line

-1 stands for none in a column of integers, NaN in one of floats, and the empty text in one of texts; in Parquet they
are null.
"""

from __future__ import annotations

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
)
FLOATS = ("purity", "flops", "bytes")
ON_DEVICE = ("kernel", "copy")
"""Kinds of rows that an accelerator executes."""


def frame(columns: Mapping[str, Any], rows: int) -> pd.DataFrame:
    """A table of `rows` rows with all columns, those that are not given being empty."""
    made: dict[str, Any] = {}
    for name in TEXTS:
        made[name] = columns[name] if name in columns else constant("", rows)
    for name in INTEGERS:
        made[name] = columns[name] if name in columns else np.full(rows, -1)
    for name in FLOATS:
        made[name] = columns[name] if name in columns else np.full(rows, np.nan)
    return pd.DataFrame(made, index=pd.RangeIndex(rows, name="event_id"), copy=False)


class Kinds:
    """Which rows are of which kind; `work` is what an accelerator executed, or where none did, the host's ops."""

    def __init__(self, events: pd.DataFrame) -> None:
        kinds = events["kind"]
        self.op, self.scope, self.step, self.runtime = (
            (kinds == name).to_numpy() for name in ("op", "scope", "step", "runtime")
        )
        self.on_device = kinds.isin(ON_DEVICE).to_numpy()
        self.work = self.on_device if self.on_device.any() else self.op


class Texts:
    """Texts by number, each once; 0 is the empty one, which stands for none."""

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
        """Numbers of the texts that other numbers stand for; what has no name has none."""
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
        """The number that a function gives each text."""
        values, given = self.values(), np.zeros(len(self._codes), np.int64)
        for code in _occurring(codes):
            given[code] = function(values[code])
        made: np.ndarray = given[codes]
        return made

    def column(self, codes: np.ndarray) -> pd.Categorical:
        """A column of texts, with those alone that occur in it."""
        values, places = self.values(), np.zeros(len(self._codes), np.int32)
        occurring = _occurring(codes)
        places[occurring] = np.arange(len(occurring))
        return words(places[codes], [values[code] for code in occurring])


def _occurring(codes: np.ndarray) -> list[int]:
    """The numbers of texts that occur, in order."""
    occurring: list[int] = np.flatnonzero(np.bincount(codes)).tolist()
    return occurring


def grouped(*columns: Any, ordered: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """The group of each row, of rows that agree in all these columns of integers, and the first row of each group.

    Groups are numbered as they occur, or if `ordered` by their values, the first column's first.
    """
    group = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        number, unique = pd.factorize(np.asarray(column), sort=ordered)
        group = pd.factorize(group * len(unique) + number, sort=ordered)[0]
    first = np.empty(int(group.max(initial=-1)) + 1, np.int64)
    first[group[::-1]] = np.arange(len(group))[::-1]
    return group, first


def words(codes: np.ndarray, values: Sequence[str]) -> pd.Categorical:
    """A column of texts, each the number of one in `values`; equal ones are made one."""
    unique = list(dict.fromkeys(values))
    if len(unique) != len(values):
        places = {value: place for place, value in enumerate(unique)}
        codes = np.array([places[value] for value in values], np.int32)[codes]
    return pd.Categorical.from_codes(codes.astype(np.int32, copy=False), pd.Index(unique, dtype=object))


def constant(text: str, rows: int) -> pd.Categorical:
    """A column of one text."""
    return words(np.zeros(rows, np.int32), [text])


def codes(column: pd.Series) -> np.ndarray:
    """The numbers that the texts of a column have in it, as int32."""
    numbers: np.ndarray = column.cat.codes.to_numpy()
    return numbers.astype(np.int32)


def with_missing(events: pd.DataFrame) -> pd.DataFrame:
    """The table for those who go on by themselves: what stands for none in it is missing."""
    texts = {name: events[name].cat.remove_categories([""]) for name in TEXTS if "" in events[name].cat.categories}
    numbers = {name: events[name].astype("Int64").mask(events[name] == -1) for name in INTEGERS}
    return events.assign(**texts, **numbers)
