"""Tables as lines of text that fit a width.

If a table is too wide, its headings wrap. If that is not enough, the least important columns are left out; then long
texts wrap or are shortened.
"""

import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from benchmarker.formatting import clean, shortened
from benchmarker.tables.shortening import apart
from benchmarker.tables.table import Cell, Column, Shown, Table, cell_text

GAP = "  "
MARK = "*"
"""What stands after the best cell of a row, which other formats print in bold."""
NARROW = 24
"""Width to which long texts are narrowed before a column is left out."""
NARROWEST = 8
"""Width to which they are narrowed when no further column can be left out."""
_NUMBER = re.compile(r"(-?\d[\d.]*(e[+-]?\d+)?( ?[^\s\d±]+)?( ± \d[\d.]*( [=?])?)?( \*)?)?|[-–]")
"""A number with its unit or its spread, and a mark."""

Paint = Callable[[str, str], str]
"""Returns a text in a colour."""


@dataclass(slots=True)
class _Column:
    """A column; `width` is what it gets, at first what it needs. A column of numbers is not narrowed.

    `word` is the width of the longest word, below which a column that wraps would break it.
    """

    heading: str
    cells: list[str]
    colours: list[str]
    is_number: bool
    is_right: bool
    is_cut: bool
    word: int
    width: int

    def least(self, floor: int, *, breaks: bool = False) -> int:
        """Return the width to which the column can be narrowed, if texts narrow to `floor`, and words may break."""
        if self.is_number:
            return self.width
        return min(self.width, floor if breaks else max(floor, self.word))

    def shorten(self) -> None:
        """Shorten the texts that are too long for the column."""
        if all(cell_len(cell) == len(cell) for cell in self.cells):
            self.cells = apart(self.cells, self.width)
        else:
            long = (cell_len(cell) > self.width for cell in self.cells)
            self.cells = [
                shortened(cell, _characters(cell, self.width)) if is_long else cell
                for cell, is_long in zip(self.cells, long, strict=True)
            ]

    def lines(self, cell: str) -> list[str]:
        """Return a cell as lines that fit the column."""
        return _wrapped(cell, self.width)

    def padded(self, line: str, painted: str) -> str:
        """Return a painted line of a cell with the width of the column."""
        space = " " * (self.width - cell_len(line))
        return space + painted if self.is_right else painted + space


@dataclass(frozen=True, slots=True)
class Lines:
    """A table as lines, and the headings of the columns that were left out; `more` is a line that names them."""

    headings: list[str]
    rows: list[str]
    left_out: list[str]
    more: str


def lines(table: Table, width: int | None = None, paint: Paint = lambda text, _: text) -> Lines:
    """Return a table that fits a width in characters, if one is given.

    Columns of numbers are aligned to the right. `paint` colours the cells that have a colour; the best of a row has a
    mark.
    """
    columns, rows = table.printed
    made = [
        _column(column, [row[at] for row in rows], is_cut=column.heading in table.cut)
        for at, column in enumerate(columns)
    ]
    left_out = [] if width is None else _fit(made, width, list(map(clean, table.drop)))
    for column in made:
        if column.is_cut:
            column.shorten()
    top = _line([_wrapped(column.heading, column.width) for column in made], made, [""] * len(made), paint)
    body = []
    for at in range(len(rows)):
        cells = [column.lines(column.cells[at]) for column in made]
        body += _line(cells, made, [column.colours[at] for column in made], paint)
    more = f"{table.remedy} more columns: {', '.join(left_out)}"
    named = textwrap.shorten(more, width, placeholder=" …") if width and left_out else ""
    return Lines(top if table.headed else [], body, left_out, named)


def text(table: Table) -> str:
    """Return a table as lines of any length, with its title and its notes."""
    made = lines(table)
    title = [clean(table.title)] if table.title else []
    return "\n".join([*title, *made.headings, *made.rows, *(f"  {clean(note)}" for note in table.remarks(MARK))]) + "\n"


def _column(column: Column, cells: Sequence[Cell], *, is_cut: bool) -> _Column:
    heading, *cleaned = map(clean, (column.heading, *(_marked(cell, column) for cell in cells)))
    is_number = all(map(_NUMBER.fullmatch, cleaned))
    words = heading.split() if is_cut else " ".join([heading, *cleaned]).split()
    return _Column(
        heading=heading,
        cells=cleaned,
        colours=[cell.colour if isinstance(cell, Shown) else "" for cell in cells],
        is_number=is_number,
        is_right=is_number or column.numeric,
        is_cut=is_cut,
        word=max(map(cell_len, words), default=0),
        width=max([cell_len(heading), *map(cell_len, cleaned)]),
    )


def _marked(cell: Cell, column: Column) -> str:
    is_best = isinstance(cell, Shown) and cell.best
    return cell_text(cell, column) + (f" {MARK}" if is_best else "")


def _fit(columns: list[_Column], width: int, drop: Collection[str]) -> list[str]:
    """Narrow columns and leave some out until they fit a width; returns the headings of those left out."""
    if _total(columns) <= width:
        return []
    headings = [each.heading for each in columns]
    for each in columns:
        each.width = min(width, max(map(cell_len, (*each.heading.split(), *each.cells)), default=0))
    left_out: set[str] = set()
    for heading in drop:
        if _total(columns, NARROW) <= width:
            break
        left_out.add(heading)
        columns[:] = [each for each in columns if each.heading != heading]
    for floor, breaks in ((NARROW, False), (NARROWEST, False), (NARROWEST, True)):
        while _total(columns) > width:
            widest = max(columns, key=lambda each: each.width - each.least(floor, breaks=breaks))
            if widest.width == widest.least(floor, breaks=breaks):
                break
            widest.width -= 1
    return [heading for heading in headings if heading in left_out]


def _total(columns: Sequence[_Column], floor: int | None = None) -> int:
    widths = [each.width if floor is None else each.least(floor) for each in columns]
    return sum(widths) + len(GAP) * (len(columns) - 1)


def _line(cells: Sequence[list[str]], columns: Sequence[_Column], colours: Sequence[str], paint: Paint) -> list[str]:
    """Return the lines of a row, given those of its cells."""
    found = []
    for at in range(max(map(len, cells))):
        texts = [cell[at] if at < len(cell) else "" for cell in cells]
        painted = (
            paint(text, colour) if colour and text else text for text, colour in zip(texts, colours, strict=True)
        )
        found.append(GAP.join(map(_Column.padded, columns, texts, painted)).rstrip())
    return found


def width() -> int | None:
    """Return the width of the terminal, or None if standard output is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def sentence(text: str, indent: str) -> list[str]:
    """Return the lines of a sentence, which wraps on a terminal, with an indent of the lines after the first."""
    columns = width()
    if not columns:
        return [clean(text)]
    return textwrap.wrap(clean(text), columns, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _wrapped(text: str, width: int) -> list[str]:
    """Return a text as lines; all but the first are indented if there is room, also for each word."""
    if cell_len(text) <= width:
        return [text]
    indent = "  " if width >= max(NARROW, *(cell_len(word) + 2 for word in text.split())) else ""
    return textwrap.wrap(text, _characters(text, width), subsequent_indent=indent, break_on_hyphens=False) or [""]


def _characters(text: str, width: int) -> int:
    """Return how many of a text's characters fit a width; some, such as Chinese ones, take up two places."""
    return width if cell_len(text) == len(text) else max(1, width // 2)
