"""A profiler's SQLite database, whose tables and columns differ between versions."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import pandas as pd


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
