"""What a command returns, and the one place that prints it: text for people, JSON, or tables in other formats."""

import inspect
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec
from rich.console import Console

from benchmarker.api.errors import UserError
from benchmarker.cli.options.types import Choice, Integer
from benchmarker.display.result import Part, Text
from benchmarker.files import atomic
from benchmarker.files.atomic import as_json as encoded_json
from benchmarker.formatting import clean
from benchmarker.tables import terminal
from benchmarker.tables.formats import FORMATS
from benchmarker.tables.table import Table

_F = TypeVar("_F", bound=Callable[..., Any])
TOP = 30
"""Rows of a table of a profile unless --top gives another number."""
MOST_NOTES = 6
"""Notes on several comparisons that a terminal shows without --verbose."""
ALL = 0
"""The number for --top that leaves no row out."""
TEXT = "text"
OUTPUT = {"as_json", "as_csv", "form", "wide", "top"}
"""The parameters that say how an output is printed."""
_ENDINGS = {".md": "markdown", ".tex": "latex", ".csv": "csv", ".html": "html", ".htm": "html", ".txt": TEXT}
_UNUSUAL = re.compile(r"[^\n -~]")
"""Characters that may be unprintable; in JSON they are escaped so that a hostile name cannot control the terminal."""

WIDE = "Show every column and all parameters, even if lines are longer than the terminal."

verbose_option = click.option(
    "-v", "--verbose", is_flag=True, help="Also print the tests, p-values, corrections and measures of noise."
)


@dataclass(frozen=True, slots=True)
class Output:
    """What a command returns: the parts of its text in order, the value that `--json` prints, and its exit status.

    `parts` are made only if they are printed. `data` may be a function that returns the value; an iterator is printed
    as a list, piece by piece. `csv` is the table that `--csv` prints, or a function that returns it, unless it is the
    first of the parts. The `notes` stand below the text, and on standard error below other formats. `stored` says what
    was stored where.
    """

    parts: Iterable[Part] = ()
    data: Any = None
    status: int = 0
    csv: Table | Callable[[], Table] | None = None
    notes: Sequence[Text] = ()
    stored: str = ""


@dataclass(frozen=True, slots=True)
class View:
    """How an output is printed: `form` is one of `FORMATS` or JSON, or None if nothing is asked for."""

    form: str | None = None
    wide: bool = False
    output: Path | None = None
    top: int = ALL

    @property
    def is_text(self) -> bool:
        """Whether it is printed for people, and not for programs or to a file."""
        return self.form is None or (self.form == TEXT and self.output is None)


def output_options(
    *,
    wide: str = WIDE,
    top: int | None = None,
    tables: bool = True,
    form: bool = True,
    written: bool = False,
    more: Sequence[str] = (),
) -> Callable[[_F], _F]:
    """Print what a command returns, and add the options that say how; unless `tables`, only `--json`.

    `--top`, by default `top`, is for commands with tables that have an order, `--title` and `--output` for tables that
    are `written` to files. `more` are formats whose lines the command makes itself. Without `form`, there is no
    `--format`, which is also an option of some problems. The command gets those of the values that it has as
    parameters, and all of them if it has a parameter `view`.
    """
    several = [click.option("--json", "as_json", is_flag=True, help="Print JSON.")]
    if tables:
        default = "by the ending of --output, otherwise text" if written else "text"
        several.append(click.option("--csv", "as_csv", is_flag=True, help="Print CSV."))
        if form:
            chosen = f"Format of the tables. [default: {default}]"
            several.append(click.option("--format", "form", type=Choice([*FORMATS, *more]), help=chosen))
        several.append(click.option("--wide", is_flag=True, help=wide))
    if written:
        several += [
            click.option("--title", metavar="TEXT", help="Title of the table."),
            click.option(
                "-o",
                "--output",
                type=click.Path(path_type=Path, dir_okay=False),
                metavar="FILE",
                help="Write the table to this file: .md, .tex, .csv, .html, .txt.",
            ),
        ]
    if top is not None:
        several.append(
            click.option(
                "--top", type=Integer(min=0), default=top, help="Maximum number of rows of a table; 0 shows all."
            )
        )

    def decorate(function: _F) -> _F:
        wanted = inspect.signature(function).parameters

        @wraps(function)
        def command(**given: Any) -> int:
            output = given.get("output") if written else None
            asked = _form(given.get("as_json"), given.get("as_csv"), given.get("form"), output)
            view = View(asked, bool(given.get("wide")), output, given.get("top") or ALL)
            for name in names.difference(wanted):
                given.pop(name)
            made: Output = function(**given, **({"view": view} if "view" in wanted else {}))
            print_output(made, view)
            return made.status

        for option in several:
            option(command)
        names = {option.name for option in command.__click_params__[-len(several) :]}  # type: ignore[attr-defined]
        return command  # type: ignore[return-value]

    return decorate


def _form(as_json: bool | None, as_csv: bool | None, form: str | None, output: Path | None) -> str | None:
    """Return the format that is asked for; raises `UserError` if there are several, or an unknown ending of a file."""
    if bool(as_json) + bool(as_csv) + bool(form or output) > 1:
        other = "--format or --output" if output else "--format"
        raise UserError(f"--json, --csv and {other} exclude each other; give one of them")
    if form is None and output is not None and output.suffix.lower() not in _ENDINGS:
        raise UserError(f"{output}: its ending names no format; end it with {', '.join(_ENDINGS)}, or name a --format")
    chosen = "json" if as_json else "csv" if as_csv else form
    return chosen or (_ENDINGS[output.suffix.lower()] if output else None)


def print_output(made: Output, view: View) -> None:
    """Print an output, or write its tables to a file whole or not at all; raises `UserError` if that fails."""
    if view.form == "json":
        data = made.data() if callable(made.data) else made.data
        if data is not None:
            (print_json_list if isinstance(data, Iterator) else print_json)(data)
    elif view.is_text or view.form not in FORMATS:
        for part in made.parts:
            _show_part(part, view)
    else:
        _show_tables(made, view)
    for note in made.notes:
        print_text(note.text, note.indent, note.colour, err=note.err or not view.is_text)
    if made.stored and view.form != "json":
        click.echo(f"\n{clean(made.stored)}", err=True)


def _show_part(part: Part, view: View) -> None:
    if isinstance(part, Table):
        table, more = part.first(view.top)
        print_rows(table, wide=view.wide)
        if more:
            click.echo(more)
    elif isinstance(part, Text):
        print_text(part.text, part.indent, part.colour, err=part.err)
    else:
        click.echo(part)


def _show_tables(made: Output, view: View) -> None:
    """Print or write the tables in a format, of CSV only the first; sentences go to standard error."""
    tables: list[Table] = []
    left_out = 0
    parts = made.parts
    if view.form == "csv" and made.csv is not None:
        parts = [made.csv() if callable(made.csv) else made.csv]
    for part in parts:
        if isinstance(part, Table):
            table, more = part.first(view.top)
            is_printed = view.form != "csv" or not tables
            left_out += not is_printed
            tables += [table] if is_printed else []
            lines = [more, *(table.notes if view.form == "csv" else ())] if is_printed else []
        else:
            lines = [part.text if isinstance(part, Text) else part.strip()]
        for line in filter(None, lines):
            print_text(line, err=True)
    if left_out:
        print_text(f"CSV is the first of {left_out + 1} tables; --json and other formats have all of them", err=True)
    text = "\n".join(FORMATS[view.form or TEXT](table) for table in tables)
    if view.output is None:
        click.echo(text, nl=False)
        return
    atomic.save(view.output, text.encode())
    click.echo(f"table: {clean(str(view.output))}", err=True)


def print_json(value: Any) -> None:
    """Print a value as indented JSON on standard output."""
    _print_json(msgspec.json.format(encoded_json(value), indent=1))


def print_json_list(values: Iterable[Any]) -> None:
    """Print values as `print_json` prints a list of them, one after the other, because all together may be large."""
    opening = "[\n "
    for value in values:
        encoded = msgspec.json.format(encoded_json(value), indent=1)
        _print_json(opening.encode() + encoded.replace(b"\n", b"\n "), nl=False)
        opening = ",\n "
    click.echo("[]" if opening[0] == "[" else "\n]")


def print_json_line(value: Any) -> None:
    """Print a value as JSON on one line of standard output."""
    _print_json(encoded_json(value))


def _print_json(encoded: bytes, *, nl: bool = True) -> None:
    text = encoded.decode()
    shown = _UNUSUAL.sub(lambda match: match[0] if match[0].isprintable() else json.dumps(match[0])[1:-1], text)
    click.echo(shown, nl=nl)


def console(*, stderr: bool = False) -> Console:
    """Return a console that does not wrap lines in a pipe and does not interpret markup."""
    made = Console(stderr=stderr, markup=False, highlight=False, emoji=False)
    if not made.is_terminal:
        made.width = 10_000
    return made


def print_rows(table: Table, *, wide: bool = False) -> None:
    """Print a table with its title and notes; on a terminal it fits, unless `wide`."""
    if table.title:
        print_text(table.title, "  ")
    made = terminal.lines(table, None if wide else terminal.width(), painted)
    for line in made.headings:
        click.echo(_styled(line, bold=True))
    for line in made.rows:
        click.echo(line)
    if made.more:
        click.echo(made.more)
    for note in table.remarks(terminal.MARK):
        print_text(f"  {note}", "    ")


def print_text(text: str, indent: str = "", colour: str = "", *, err: bool = False) -> None:
    """Print a sentence; on a terminal it wraps, with an indent of the lines after the first, and may have a colour.

    With `err`, it is printed on standard error in one line.
    """
    for line in [clean(text)] if err else terminal.sentence(text, indent):
        click.echo(painted(line, colour) if colour else line, err=err)


def most_notes(*, verbose: bool) -> int | None:
    """Return how many notes on several comparisons are printed: on a terminal a few, unless `verbose`."""
    return None if verbose or terminal.width() is None else MOST_NOTES


def painted(text: str, colour: str) -> str:
    """Return a text in a colour if standard output is a terminal that shows it; the variable NO_COLOR forbids it."""
    return text if os.environ.get("NO_COLOR") else _styled(text, fg=colour)


def _styled(text: str, **style: Any) -> str:
    return click.style(text, **style) if sys.stdout.isatty() and os.environ.get("TERM") != "dumb" else text
