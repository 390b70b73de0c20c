"""SQLite databases of profilers: opened for reading only, and told apart by their tables."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pandas as pd

from benchmarker.api.errors import UserError
from benchmarker.traces.formats import nsys, rocprof
from benchmarker.traces.formats.database import Database
from benchmarker.traces.formats.reading import Reading

MAGIC = b"SQLite format 3\0"


def read(path: Path, *, compressed: bool) -> Reading:
    """Read the rows of a database. Raises `UserError` if it is compressed, damaged or of no known profiler."""
    if compressed:
        raise UserError(f"{path}: a compressed database; unpack it first")
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.text_factory = lambda text: text.decode("utf-8", "replace")
            database = Database(connection)
            if nsys.has_tables(database):
                return nsys.read(database)
            if rocprof.has_tables(database):
                return rocprof.read(database)
    except (sqlite3.Error, pd.errors.DatabaseError) as error:
        raise UserError(f"{path}: the database cannot be read: {error}") from None
    raise UserError(
        f"{path}: an SQLite database, but not one of Nsight Systems (`nsys export --type=sqlite`) or rocprofv3 (rocpd)"
    )
