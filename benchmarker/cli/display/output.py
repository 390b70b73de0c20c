"""Printing: tables for people, JSON for pipes."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import click
import msgspec
from rich.console import Console

from benchmarker.cli.display import table
from benchmarker.files.atomic import as_json
from benchmarker.formatting import clean
from benchmarker.tables.formats import csv_text

_UNUSUAL = re.compile(r"[^\n -~]")
"""Characters that may be unprintable; in JSON they are escaped so that a hostile name cannot control the terminal."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
wide_option = click.option(
    "--wide", is_flag=True, help="Show every column and all parameters, even if lines are longer than the terminal."
)
verbose_option = click.option(
    "-v", "--verbose", is_flag=True, help="Also print the tests, p-values, corrections and measures of noise."
)
csv_option = click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")


def print_json(value: Any) -> None:
    """Print a value as indented JSON on standard output."""
    _print_json(msgspec.json.format(as_json(value), indent=1))


def print_json_list(values: Iterable[Any]) -> None:
    """Print values as `print_json` prints a list of them, one after the other, because all together may be large."""
    opening = "[\n "
    for value in values:
        encoded = msgspec.json.format(as_json(value), indent=1)
        _print_json(opening.encode() + encoded.replace(b"\n", b"\n "), nl=False)
        opening = ",\n "
    click.echo("[]" if opening[0] == "[" else "\n]")


def print_json_line(value: Any) -> None:
    """Print a value as JSON on one line of standard output."""
    _print_json(as_json(value))


def _print_json(encoded: bytes, *, nl: bool = True) -> None:
    text = encoded.decode()
    shown = _UNUSUAL.sub(lambda match: match[0] if match[0].isprintable() else json.dumps(match[0])[1:-1], text)
    click.echo(shown, nl=nl)


def print_csv(headings: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    """Print rows as CSV, as `csv_text` returns them."""
    click.echo(csv_text(headings, rows), nl=False)


def console(*, stderr: bool = False) -> Console:
    """Return a console that does not wrap lines in a pipe and does not interpret markup."""
    made = Console(stderr=stderr, markup=False, highlight=False, emoji=False)
    if not made.is_terminal:
        made.width = 10_000
    return made


def print_table(
    headings: Sequence[str] | None,
    rows: Sequence[Sequence[str]],
    *,
    drop: Collection[str] = (),
    cut: Collection[str] = (),
    right: Collection[str] = (),
    wide: bool = False,
    remedy: str = "--wide shows",
) -> None:
    """Print a table; on a terminal it fits, unless `wide`. `drop`, `cut` and `right` are those of `table.lines`.

    `remedy` says how to see the columns that were left out.
    """
    made = table.lines(
        headings or [""] * len(rows[0]), rows, None if wide else width(), drop=drop, cut=cut, right=right, paint=painted
    )
    for line in made.headings if headings else []:
        click.echo(_styled(line, bold=True))
    for line in made.rows:
        click.echo(line)
    if made.left_out:
        named = textwrap.shorten(f"{remedy} more columns: {', '.join(made.left_out)}", width() or 0, placeholder=" …")
        click.echo(named)


def print_text(text: str, indent: str = "", colour: str = "", *, err: bool = False) -> None:
    """Print a sentence; on a terminal it wraps, with an indent of the lines after the first, and may have a colour.

    With `err`, it is printed on standard error in one line.
    """
    columns = None if err else width()
    fitted = textwrap.wrap(
        clean(text), columns or sys.maxsize, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    for line in fitted if columns else [clean(text)]:
        click.echo(painted(line, colour) if colour else line, err=err)


def width() -> int | None:
    """Return the width of the terminal, or None if standard output is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def painted(text: str, colour: str) -> str:
    """Return a text in a colour if standard output is a terminal that shows it; the variable NO_COLOR forbids it."""
    return text if os.environ.get("NO_COLOR") else _styled(text, fg=colour)


def _styled(text: str, **style: Any) -> str:
    return click.style(text, **style) if sys.stdout.isatty() and os.environ.get("TERM") != "dumb" else text
