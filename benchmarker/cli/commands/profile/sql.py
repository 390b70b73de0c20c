"""`benchmarker profile sql`."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchmarker.api.errors import UserError
from benchmarker.cli.display.output import Output, output_options
from benchmarker.cli.display.progress import working
from benchmarker.cli.display.sql import answer_output
from benchmarker.cli.options.results import results_argument
from benchmarker.cli.options.types import File
from benchmarker.display.profiles import notes_on
from benchmarker.formatting import clean, count

if TYPE_CHECKING:
    import pandas as pd

    from benchmarker.hooks.sql import Rows
    from benchmarker.records.profile import Trace


@click.command("sql")
@results_argument
@click.argument("statement", metavar="SQL")
@click.option("--perfetto", is_flag=True, help="Query Perfetto's tables in PerfettoSQL, with Perfetto's engine.")
@click.option(
    "--engine",
    type=File(),
    help="The trace_processor_shell to use; implies --perfetto. [default: on PATH, or downloaded earlier]",
)
@click.option("--download", is_flag=True, help="Let Perfetto download its engine if none is found; implies --perfetto.")
@output_options()
def command(
    results: tuple[Path, ...],
    statement: str,
    perfetto: bool,
    engine: Path | None,
    download: bool,
) -> Output:
    """Query profiles in SQL: DuckDB over their event table, which is called `events`.

    RESULT is a record of a profiled trial, an event table, a profiler's trace file, or a folder of records:

      SELECT name, count(*) AS n, sum(busy_ns) AS busy_ns FROM events WHERE scope LIKE '%attn_q_k%' GROUP BY name

    `DESCRIBE events` lists the columns. The column `result` has the name of the profile.

    --perfetto queries the exported trace of one RESULT. Its slices have times since the first event, and their scope in
    the argument `args.name`:

      SELECT name, extract_arg(arg_set_id, 'args.name') AS scope, dur FROM slice WHERE scope LIKE '%attn_q_k%'
    """
    traces: dict[str, Trace] = {}
    if perfetto or engine or download:
        headings, rows = _from_perfetto(results, statement, engine, download)
    else:
        (headings, rows), traces = _from_tables(results, statement)

    return answer_output(headings, rows, notes=notes_on(list(traces.values()), list(traces)))


def _from_tables(results: Sequence[Path], statement: str) -> tuple[tuple[list[str], Rows], dict[str, Trace]]:
    """Return columns and rows from DuckDB, and the traces by name."""
    with working("reading"):
        from benchmarker.traces.profile_files import names, profiles
        from benchmarker.traces.sql import query

        opened = profiles(results)
        traces = zip(names(opened), (profile.ingested.trace for profile in opened), strict=True)
        return query(opened, statement), dict(traces)


def _from_perfetto(
    results: Sequence[Path], statement: str, engine: Path | None, download: bool
) -> tuple[list[str], Rows]:
    """Return columns and rows from Perfetto's engine, and report what it dropped."""
    from benchmarker.traces import annotated
    from benchmarker.traces.sql import open_trace

    if len(results) > 1:
        raise UserError(f"{len(results)} RESULTs were given; --perfetto queries one")
    (result,) = results
    with tempfile.TemporaryDirectory(prefix="benchmarker-") as folder:
        path = annotated.write(result, None if _writable(result) else Path(folder) / "trace.json")
        with open_trace(path, engine=engine, download=download, tell=_tell) as opened:
            answer = opened.query(statement)
            dropped = opened.dropped()
    if dropped:
        _tell(_lost(dropped))
    columns = [_values(answer.iloc[:, at]) for at in range(len(answer.columns))]
    return answer.columns.tolist(), list(zip(*columns, strict=True))


def _writable(result: Path) -> bool:
    """Return whether the annotated trace can be stored next to a result."""
    return os.access(result if result.is_dir() else result.parent, os.W_OK)


def _tell(text: str) -> None:
    click.echo(f"benchmarker: {clean(text)}", err=True)


def _lost(dropped: dict[str, int]) -> str:
    """Return the warning for a trace that was not imported in full."""
    lost = f"{count(sum(dropped.values()), 'slice')} ({', '.join(dropped)})"
    return f"perfetto dropped {lost}: counts and sums over this trace are too low"


def _values(column: pd.Series) -> list[Any]:
    """Return the values of a column, None for null."""
    return [None if missing else value for value, missing in zip(column.tolist(), column.isna().tolist(), strict=True)]
