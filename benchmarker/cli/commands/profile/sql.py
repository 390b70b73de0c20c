"""`benchmarker profile sql`."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchmarker.api.errors import UserError
from benchmarker.cli.display.output import csv_option, json_option, print_csv, print_json, print_table
from benchmarker.formatting import clean, count
from benchmarker.traces.perfetto import annotated_file
from benchmarker.traces.perfetto.queries import open_trace

if TYPE_CHECKING:
    import pandas as pd


@click.command("sql")
@click.argument("result", metavar="RESULT", type=click.Path(path_type=Path))
@click.argument("statement", metavar="SQL")
@json_option
@csv_option
@click.option("--engine", metavar="FILE", type=click.Path(path_type=Path), help="The trace_processor_shell to use.")
@click.option("--download", is_flag=True, help="Let Perfetto download an engine if there is none.")
def command(result: Path, statement: str, as_json: bool, as_csv: bool, engine: Path | None, download: bool) -> None:
    """Query the profile of RESULT with Perfetto's SQL.

    RESULT is a record of a profiled trial, an event table, or a profiler's trace file. The argument `args.name` of a
    slice is its scope:

      SELECT name, extract_arg(arg_set_id, 'args.name') AS scope, dur FROM slice WHERE scope LIKE '%attn_q_k%'

    Times are in nanoseconds since the first event.
    """
    if as_json and as_csv:
        raise UserError("--json and --csv exclude each other; give one of them")
    with tempfile.TemporaryDirectory(prefix="benchmarker-") as folder:
        path = annotated_file.write(result, None if _writable(result) else Path(folder) / "trace.json")
        with open_trace(path, engine=engine, download=download, tell=_tell) as opened:
            found = opened.query(statement)
            dropped = opened.dropped()
    headings = [str(name) for name in found.columns]
    columns = [_plain(found.iloc[:, at]) for at in range(len(headings))]
    rows = list(zip(*columns, strict=True))
    if as_json:
        print_json([dict(zip(headings, row, strict=True)) for row in rows])
    elif as_csv:
        print_csv(headings, rows)
    elif headings:
        print_table([clean(name) for name in headings], [[_cell(value) for value in row] for row in rows])
    if dropped:
        _tell(_lost(dropped))


def _writable(result: Path) -> bool:
    """Return whether the annotated trace can be stored next to a result."""
    return os.access(result if result.is_dir() else result.parent, os.W_OK)


def _tell(text: str) -> None:
    click.echo(f"benchmarker: {clean(text)}", err=True)


def _lost(dropped: dict[str, int]) -> str:
    """Return the warning for a trace that was not imported in full."""
    lost = f"{count(sum(dropped.values()), 'slice')} ({', '.join(dropped)})"
    return f"perfetto dropped {lost}: counts and sums over this trace are too low"


def _plain(column: pd.Series) -> list[Any]:
    """Return the values of a column as JSON values; bytes become hexadecimal digits."""
    return [
        None if missing else value.hex() if isinstance(value, bytes) else value
        for value, missing in zip(column.tolist(), column.isna().tolist(), strict=True)
    ]


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.10g}" if isinstance(value, float) else str(value)
