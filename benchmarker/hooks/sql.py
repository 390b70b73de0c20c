"""SQL that only reads, in DuckDB over tables of Arrow: those of profiles, and those of records and archives."""

from __future__ import annotations

import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarker.api.errors import UserError
from benchmarker.records.archive_rows import UnreadableError

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa
    import pyarrow.dataset as ds

_READING = ("SELECT", "EXPLAIN", "MULTI")
"""Types of statements that only read; the last is that of `PIVOT`."""
_QUOTED = re.compile(r"\n\nLINE |, due to the following")
"""What begins a quotation in DuckDB's messages."""

Rows = list[tuple[Any, ...]]


class Hint(NamedTuple):
    """What is said after DuckDB's message: if a table is not known, and otherwise."""

    tables: str
    columns: str


def over_tables(
    tables: Mapping[str, pa.Table | ds.Dataset], statement: str, hint: Hint, views: Mapping[str, str] | None = None
) -> tuple[list[str], Rows]:
    """Return the columns and rows that a statement returns over tables, and over views that are SELECTs over these.

    Raises `UserError` if the statement does not only read or is wrong, `UnreadableError` if it fails for another
    reason, such as a damaged file, and ModuleNotFoundError if DuckDB is not installed.
    """
    import duckdb

    wrong = (duckdb.ProgrammingError, duckdb.DataError, duckdb.NotSupportedError, duckdb.PermissionException)
    # A statement reaches no file, network or extension, and cannot change that.
    with closing(
        duckdb.connect(config={"enable_external_access": False, "temp_directory": "", "lock_configuration": True})
    ) as connection:
        for name, table in tables.items():
            connection.register(name, table)
        try:
            for name, select in (views or {}).items():
                connection.execute(f"CREATE VIEW {name} AS {select}")
            statements = connection.extract_statements(statement)
            if [statement.type.name in _READING for statement in statements] != [True]:
                raise UserError("the SQL is not one statement that only reads; give one SELECT")
            return _answer(connection, statements[0])
        except duckdb.Error as error:
            is_wrong = isinstance(error, wrong) and not isinstance(error, duckdb.InvalidInputException)
            kind = UserError if is_wrong else UnreadableError
            raise kind(f"duckdb: {_one_line(error, hint)}") from error


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


def _one_line(error: duckdb.Error, hint: Hint) -> str:
    """Return DuckDB's message without the statement or traceback that it quotes, and what to do."""
    message = " ".join(_QUOTED.split(str(error))[0].split())
    return f"{message} {hint.tables}" if "Table with name" in message else f"{message}; {hint.columns}"
