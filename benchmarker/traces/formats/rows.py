"""Rows of a trace that come from tables: of a SQLite database, or of files with values separated by commas."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from benchmarker.traces.events import INTEGERS, frame, words
from benchmarker.traces.formats.notation import launch


class Database:
    """The tables of an open database; names of tables and columns come from the database itself or from this code."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        self.tables = {str(name) for (name,) in found}

    def beginning(self, prefix: str) -> list[str]:
        """The tables whose name begins so, in order."""
        return sorted(name for name in self.tables if name.startswith(prefix))

    def select(self, table: str, columns: Sequence[str]) -> pd.DataFrame:
        """Columns of a table; without rows if there is no such table, and None where it lacks a column."""
        if table not in self.tables:
            return pd.DataFrame({name: [] for name in columns})
        has = {str(row[1]) for row in self._connection.execute(f"PRAGMA table_info({_quoted(table)})")}
        chosen = ", ".join(_quoted(name) if name in has else f"NULL AS {_quoted(name)}" for name in columns)
        return pd.read_sql_query(f"SELECT {chosen} FROM {_quoted(table)}", self._connection)  # noqa: S608 (all quoted)

    def names(self, table: str, key: str, value: str) -> dict[object, str]:
        """The texts of a table by their number."""
        found = self.select(table, [key, value])
        return {number: str(text) for number, text in zip(found[key], found[value], strict=True) if text is not None}


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


_TEXTS = ("kind", "name", "device", "track", "launch")
_LATEST = float(1 << 62)
"""Later times do not fit int64 ns."""


def numbered(prefix: str, numbers: pd.Series) -> pd.Series:
    """Names such as `gpu:0` or `stream 7`, with a question mark for a number that is unknown."""
    values = pd.to_numeric(numbers, errors="coerce").astype(float)
    texts = [f"{prefix}{value:.0f}" if np.isfinite(value) else f"{prefix}?" for value in values]
    return pd.Series(texts, numbers.index, dtype=object)


def looked_up(keys: pd.Series, known: Mapping[Any, Any], otherwise: Any = "") -> pd.Series:
    """What is known of each key."""
    return pd.Series([known.get(key, otherwise) for key in keys], keys.index, dtype=object)


def launches(
    kernels: pd.DataFrame, grid: pd.DataFrame, block: Sequence[str], registers: str, shared: Sequence[str]
) -> pd.Series:
    """The text of each kernel's launch: its grid in blocks, and columns of the kernels; empty if a size is unknown."""
    beside = kernels.reindex(columns=[*block, registers, *shared])
    numbers = pd.concat([grid, beside], axis=1).apply(pd.to_numeric, errors="coerce").astype(float).fillna(-1)
    each, of = np.unique(numbers.to_numpy(), axis=0, return_inverse=True)
    texts = [_launch([int(number) for number in numbers]) for numbers in each]
    return pd.Series([texts[place] for place in of.ravel()], kernels.index, dtype=object)


def _launch(numbers: Sequence[int]) -> str:
    """The text of a launch: three sizes of the grid, three of the block, registers, parts of shared memory."""
    grid, block = (",".join(map(str, three)) for three in (numbers[:3], numbers[3:6]))
    registers, shared = numbers[6], [part for part in numbers[7:] if part >= 0]
    known = min(numbers[:6]) > 0
    return (
        launch(
            grid=grid,
            block=block,
            registers=registers if registers >= 0 else None,
            shared=sum(shared) if shared else None,
        )
        if known
        else ""
    )


def rows(pieces: Sequence[pd.DataFrame]) -> tuple[pd.DataFrame, int]:
    """One event table of pieces with `begin` and `end` in ns and any columns of the table; and how many rows are bad.

    A row is bad, and left out, if it has no valid times. Numbers that are none become unknown.
    """
    table = pd.concat(pieces, ignore_index=True) if pieces else pd.DataFrame({"begin": [], "end": []})
    begin, end = (pd.to_numeric(table[name], errors="coerce").astype(float) for name in ("begin", "end"))
    good = ((begin >= 0) & (end >= begin) & (end < _LATEST)).to_numpy()
    table = table[good]
    begin, end = (pd.to_numeric(table[name]).astype(np.int64).to_numpy() for name in ("begin", "end"))
    columns: dict[str, object] = {"ts_ns": begin, "dur_ns": end - begin}
    for name in _TEXTS:
        if name in table:
            code, values = pd.factorize(table[name].fillna("").astype(str))
            columns[name] = words(code, list(values))
    for name in INTEGERS:
        if name in table:
            numbers = pd.to_numeric(table[name], errors="coerce").astype(float)
            columns[name] = numbers.where((numbers >= 0) & (numbers < _LATEST), -1).astype(np.int64).to_numpy()
    if "bytes" in table:
        columns["bytes"] = pd.to_numeric(table["bytes"], errors="coerce").astype(float).to_numpy()
    return frame(columns, len(table)), int((~good).sum())
