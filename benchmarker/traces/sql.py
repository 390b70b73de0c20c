"""SQL over event tables, in DuckDB."""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from benchmarker.api.errors import UserError
from benchmarker.hooks.registry import needing
from benchmarker.traces import parquet
from benchmarker.traces.profile_files import Profile, names

if TYPE_CHECKING:
    import duckdb

_READING = ("SELECT", "EXPLAIN", "MULTI")
"""Types of statements that only read; the last is that of `PIVOT`."""
_QUOTED = re.compile(r"\n\nLINE |, due to the following")
"""What begins a quotation in DuckDB's messages."""

Rows = list[tuple[Any, ...]]


def query(profiles: Sequence[Profile], statement: str) -> tuple[list[str], Rows]:
    """The columns and rows that a statement returns over the table `events`: the event tables of all profiles.

    The column `result` has the name of the profile. Unknown values are null. Integers are exact.
    """
    with needing("trace", "SQL over profiles"):
        import duckdb
    events = _events(profiles)
    # A statement reaches no file, network or extension, and cannot change that.
    with closing(
        duckdb.connect(config={"enable_external_access": False, "temp_directory": "", "lock_configuration": True})
    ) as connection:
        connection.register("events", events)
        try:
            statements = connection.extract_statements(statement)
            if [statement.type.name in _READING for statement in statements] != [True]:
                raise UserError("the SQL is not one statement that only reads; give one SELECT")
            return _answer(connection, statements[0])
        except duckdb.Error as error:
            raise UserError(f"duckdb: {_one_line(error)}") from error


def _events(profiles: Sequence[Profile]) -> pa.Table:
    tables = [parquet.table(profile.ingested.events) for profile in profiles]
    named = zip(tables, names(profiles), strict=True)
    return pa.concat_tables(table.append_column("result", pa.array([name] * len(table))) for table, name in named)


def _answer(connection: duckdb.DuckDBPyConnection, statement: duckdb.Statement) -> tuple[list[str], Rows]:
    """Run a statement in a thread, because only from another one can it be interrupted."""

    def run() -> tuple[list[str], Rows]:
        rows = connection.execute(statement).fetchall()
        return [column[0] for column in connection.description or ()], rows

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run)
        try:
            return running.result()
        except KeyboardInterrupt:
            while not running.done():  # before, the connection cannot be closed: not even after a second interrupt
                with suppress(KeyboardInterrupt):
                    connection.interrupt()
                    wait([running])
            raise


def _one_line(error: duckdb.Error) -> str:
    """DuckDB's message without the statement or traceback that it quotes, and what to do."""
    message = " ".join(_QUOTED.split(str(error))[0].split())
    if "Table with name" in message:
        return f"{message} The table is events; --perfetto queries Perfetto's tables"
    return f"{message}; DESCRIBE events lists the columns"
