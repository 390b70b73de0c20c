"""Printing: tables for people, JSON for pipes."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarker.formatting import clean, spreadsheet_text

_UNUSUAL = re.compile(r"[^\n -~]")
"""Characters that may be unprintable; in JSON they are escaped so that a hostile name cannot control the terminal."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
csv_option = click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")


def print_json(value: Any) -> None:
    """Print a value as indented JSON on standard output."""
    _print_json(msgspec.json.format(msgspec.json.encode(value), indent=1))


def print_json_line(value: Any) -> None:
    """Print a value as JSON on one line of standard output."""
    _print_json(msgspec.json.encode(value))


def _print_json(encoded: bytes) -> None:
    text = encoded.decode()
    click.echo(_UNUSUAL.sub(lambda match: match[0] if match[0].isprintable() else json.dumps(match[0])[1:-1], text))


def print_csv(headings: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    """Print rows as CSV, one line each; no text is a formula or has control characters, and None and NaN are empty."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([_csv_cell(each) for each in row] for row in (headings, *rows))
    click.echo(text.getvalue(), nl=False)


def _csv_cell(value: Any) -> Any:
    if isinstance(value, str):
        return spreadsheet_text(clean(value))
    return None if isinstance(value, float) and math.isnan(value) else value


def console(*, stderr: bool = False) -> Console:
    """Return a console that does not wrap lines in a pipe and does not interpret markup."""
    made = Console(stderr=stderr, markup=False, highlight=False, emoji=False)
    if not made.is_terminal:
        made.width = 10_000
    return made


def make_table(headings: Sequence[str] | None, rows: Sequence[Sequence[str]]) -> Table:
    """Return a table; columns in which every cell looks like a number are right-aligned."""
    table = Table(box=None, pad_edge=False, header_style="bold", show_header=headings is not None)
    for index, heading in enumerate(headings or rows[0]):
        numeric = headings is not None and all(map(_is_number, (row[index] for row in rows)))
        table.add_column(Text(heading), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(clean(cell)) for cell in row))
    return table


def _is_number(cell: str) -> bool:
    return cell == "-" or cell.removeprefix("-")[:1].isdigit()


def print_table(headings: Sequence[str] | None, rows: Sequence[Sequence[str]]) -> None:
    """Print a table."""
    printer = console()
    with printer.capture() as capture:
        printer.print(make_table(headings, rows))
    for line in capture.get().splitlines():
        click.echo(line.rstrip())
