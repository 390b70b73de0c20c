"""SQLite databases of profilers: opened for reading only, and told apart by their tables."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pandas as pd

from benchmarker.api.errors import UserError
from benchmarker.traces.formats import nsys, rocprof
from benchmarker.traces.formats.reading import Reading
from benchmarker.traces.formats.rows import Database

MAGIC = b"SQLite format 3\0"
OTHER = "an SQLite database, but of neither Nsight Systems (nsys export --type=sqlite) nor rocprofv3 (rocpd)"


def is_profile(path: Path) -> bool:
    """Whether a database is one of a profiler."""
    try:
        with _opened(path) as database:
            return nsys.has_tables(database) or rocprof.has_tables(database)
    except UserError:
        return False


def read(path: Path) -> Reading:
    """Read the rows of a database. Raises `UserError` if it is damaged or of no known profiler."""
    with _opened(path) as database:
        if nsys.has_tables(database):
            return nsys.read(database)
        if rocprof.has_tables(database):
            return rocprof.read(database)
    raise UserError(f"{path}: {OTHER}; it is no trace")


@contextmanager
def _opened(path: Path) -> Iterator[Database]:
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.text_factory = lambda text: text.decode("utf-8", "replace")
            yield Database(connection)
    except (sqlite3.Error, pd.errors.DatabaseError) as error:
        raise UserError(f"{path}: the database cannot be read: {error}; is it compressed or damaged?") from None
