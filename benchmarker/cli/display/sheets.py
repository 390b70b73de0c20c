"""Sheets in the format that is asked for: on standard output, or in a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from benchmarker.api.errors import UserError
from benchmarker.cli.display import table
from benchmarker.cli.display.output import print_table, print_text
from benchmarker.cli.options.types import Choice
from benchmarker.files import atomic
from benchmarker.formatting import clean
from benchmarker.tables.formats import FORMATS

if TYPE_CHECKING:
    from benchmarker.tables.sheet import Sheet

_F = TypeVar("_F", bound=Callable[..., Any])
TEXT = "text"
_ENDINGS = {".md": "markdown", ".tex": "latex", ".csv": "csv", ".html": "html", ".htm": "html", ".txt": TEXT}
MARK = "*"
"""What stands after a cell that other formats print in bold."""


def format_options(function: _F) -> _F:
    """Add the options `--format`, `--title` and `--output` to a command, which gets the format as `form`."""
    for option in (
        click.option(
            "-o",
            "--output",
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="FILE",
            help="Write the table to this file: .md, .tex, .csv, .html, .txt.",
        ),
        click.option("--title", metavar="TEXT", help="Title of the table."),
        click.option(
            "--format",
            "form",
            type=Choice([TEXT, *FORMATS]),
            help="Format of the table. [default: by the ending of --output, otherwise text]",
        ),
    ):
        function = option(function)
    return function


def format_of(form: str | None, output: Path | None) -> str:
    """Return the format that is asked for; raises `UserError` if the ending of the file names none."""
    if form is None and output is not None and output.suffix.lower() not in _ENDINGS:
        raise UserError(f"{output}: its ending names no format; end it with {', '.join(_ENDINGS)}, or name a --format")
    return form or (_ENDINGS[output.suffix.lower()] if output else TEXT)


def print_sheet(sheet: Sheet, form: str | None, output: Path | None, *, wide: bool) -> None:
    """Print a sheet, or write it to a file whole or not at all; CSV has no notes, so they go to standard error.

    Raises `UserError` if the file cannot be written.
    """
    form = format_of(form, output)
    if output is None and form == TEXT:
        _print(sheet, wide=wide)
        return
    text = _text(sheet) if form == TEXT else FORMATS[form](sheet)
    if output is None:
        click.echo(text, nl=False)
    else:
        try:
            atomic.write(output, text.encode())
        except OSError as error:
            raise UserError(f"cannot write {output}: {error.strerror}") from error
        click.echo(f"table: {clean(str(output))}", err=True)
    if form == "csv":
        for note in sheet.notes:
            print_text(note, err=True)


def _print(sheet: Sheet, *, wide: bool) -> None:
    if sheet.title:
        print_text(sheet.title, "  ")
    headings, rows, right = _lines(sheet)
    print_table(headings, rows, drop=headings[: sheet.labels : -1], right=right, wide=wide)
    for note in sheet.remarks(MARK):
        print_text(f"  {note}", "    ")


def _text(sheet: Sheet) -> str:
    headings, rows, right = _lines(sheet)
    made = table.lines(headings, rows, right=right)
    title = [clean(sheet.title)] if sheet.title else []
    return "\n".join([*title, *made.headings, *made.rows, *(f"  {clean(note)}" for note in sheet.remarks(MARK))]) + "\n"


def _lines(sheet: Sheet) -> tuple[list[str], list[list[str]], list[str]]:
    """Return the headings, the cells, and the headings of the columns that are aligned to the right."""
    rows = [[f"{cell.text} {MARK}" if cell.best else cell.text for cell in row] for row in sheet.rows]
    right = [column.heading for column in sheet.columns if column.is_number]
    return [column.heading for column in sheet.columns], rows, right
