"""The content of the page, before any markup: sections of text, tables and figures."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Literal, NamedTuple, TypeVar

from benchmarker.comparing.results import Verdict
from benchmarker.formatting import clean
from benchmarker.page.trace_marks import Icicle, Timeline
from benchmarker.tables.table import Cell, Column, Table

SEARCHED = 10
"""Tables with more rows than this can be filtered."""
WIDE = 8
"""Ratio of the largest to the least value from which an axis is logarithmic."""
BELOW = 0.3
"""Distance of single values below the row of their curve, in rows."""
_BREAKS = re.compile(r"\s*[\n\r\t]\s*")
T = TypeVar("T")
Look = Literal["dots", "line", "line and dots", "hollow", "small", "small dots"]
Dot = tuple[float, float, float | None, float | None, str]
"""A point: x, y, the ends of its interval, and its text."""
Ends = tuple[Sequence[float | None], Sequence[float | None]]
"""The lower and the upper ends of the intervals of points, None for one that is not known; empty without any."""


@dataclass(frozen=True, slots=True)
class Listing:
    """A table on the page; the reader can open a `folded` one and filter a `searched` one."""

    title: str
    table: Table
    caption: str = ""
    folded: bool = False
    searched: bool = False


def searchable(title: str, table: Table, caption: str = "", *, folded: bool = False) -> Listing:
    """Return a table on the page that can be filtered if it is long."""
    return Listing(title, table, caption, folded, searched=len(table.rows) > SEARCHED)


def table_of(items: Iterable[T], *columns: tuple[Column, Callable[[T], Cell]]) -> Table:
    """Return a table with a row for each item; each column comes with the function that gives its cells."""
    several = list(items)
    return Table.of_columns([(column, [cell(item) for item in several]) for column, cell in columns])


def drawn(items: Sequence[T], most: int, what: str = "") -> tuple[Sequence[T], str]:
    """Return the items that a figure draws, the first ones, and the note on the others."""
    if len(items) <= most:
        return items, ""
    of = f"{len(items)} {what}".strip()
    return items[:most], f"Only the first {most} of {of} are drawn; the data table has all."


def digits(values: Iterable[float], number: int) -> tuple[float, ...]:
    """Return values rounded to so many significant digits, which is less to read."""
    return tuple(float(f"{value:.{number}g}") for value in values)


@dataclass(frozen=True, slots=True)
class Axis:
    """A numeric axis: its title, its unit, and values that it must reach (`limit`), if it can: a logarithmic one not 0.

    A logarithmic axis becomes linear if its values are close together, unless it is `always` logarithmic because lines
    are straight only on such axes.
    """

    title: str
    unit: str = ""
    log: bool | Literal["always"] = False
    limit: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Bars:
    """Bars of one series, from 0, in the rows `at`; `low` and `high` are the ends of intervals, or None without one.

    Series are sides, each with its colour. Those of `stacked` bars are kinds, which have colours of their own.
    """

    name: str
    series: int
    at: tuple[int, ...]
    values: tuple[float, ...]
    low: tuple[float | None, ...] = ()
    high: tuple[float | None, ...] = ()
    stacked: bool = False


@dataclass(frozen=True, slots=True)
class Boxes:
    """Boxes of one series in the rows `at`: 5th percentile, lower quartile, median, upper quartile, 95th percentile."""

    name: str
    series: int
    at: tuple[int, ...]
    five: tuple[tuple[float, float, float, float, float], ...]


@dataclass(frozen=True, slots=True)
class Points:
    """Points of one series.

    `low` and `high` are the ends of intervals, along x if `y` are rows, and along y otherwise; then, `left` and `right`
    are those along x. `texts` are shown on hover, `labels` next to the points. `symbol` is that of the series unless
    given. `listed` points appear in the legend.
    """

    name: str
    series: int
    x: tuple[float, ...]
    y: tuple[float, ...]
    texts: tuple[str, ...] = ()
    low: tuple[float | None, ...] = ()
    high: tuple[float | None, ...] = ()
    look: Look = "dots"
    symbol: int | None = None
    labels: tuple[str, ...] = ()
    listed: bool = True
    left: tuple[float | None, ...] = ()
    right: tuple[float | None, ...] = ()

    @classmethod
    def of(
        cls, name: str, series: int, dots: Iterable[Dot], look: Look = "line and dots", symbol: int | None = None
    ) -> Points:
        """Return the points of a series, in the order in which a line joins them."""
        x, y, low, high, texts = zip(*dots, strict=True)
        return cls(name, series, x, y, texts, low, high, look, symbol)


@dataclass(frozen=True, slots=True)
class Heat:
    """A heat map: values around 0 in the rows of the figure, None where there is none; its only mark.

    `columns` are named along x. Colours are full at ± `limit`. `texts` are shown on hover. Rows are low, so that a few
    hundred fit.
    """

    name: str
    columns: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]
    texts: tuple[tuple[str, ...], ...]
    limit: float
    series: int = 0


@dataclass(frozen=True, slots=True)
class Ridge:
    """A curve of one series above the row `at`: `heights` from 0 to 1, of the room above the row, at each `x`."""

    name: str
    series: int
    at: int
    x: tuple[float, ...]
    heights: tuple[float, ...]


Mark = Bars | Boxes | Points | Heat | Ridge | Icicle | Timeline


@dataclass(frozen=True, slots=True)
class Band:
    """A shaded range of x across the whole figure, with its name; one in `doubt` marks what not to rely on."""

    start: float
    end: float
    name: str = ""
    look: Literal["plain", "doubt"] = "plain"


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure and its data. With `rows`, the vertical axis has these names, the first at the top.

    `lines` are values of x marked across all rows, `bands` are shaded ranges of x.
    """

    key: str
    title: str
    caption: str
    x: Axis
    marks: tuple[Mark, ...]
    data: Table
    y: Axis | None = None
    rows: tuple[str, ...] = ()
    lines: tuple[float, ...] = ()
    bands: tuple[Band, ...] = ()
    left_out: str = ""


class Entry(NamedTuple):
    """A name that a legend explains, and the number of the first mark that has it.

    If the mark runs to the right (`runs`), the name can stand at its end instead.
    """

    name: str
    mark: int
    runs: bool


def is_wide(values: Sequence[float]) -> bool:
    """Return whether values suit a logarithmic axis."""
    return min(values) > 0 and max(values) >= WIDE * min(values)


def axes_of(figure: Figure) -> tuple[Axis, Axis | None]:
    """Return the axes of x and of y, None with rows; the values of an axis include the ends of intervals along it."""
    points = [mark for mark in figure.marks if isinstance(mark, Points)]
    across = [*figure.lines, *(x for mark in figure.marks for x in _across(figure, mark))]
    up = [y for mark in points for y in (*mark.y, *_known(ends_of(figure, mark)[1]))]
    return _axis_of(figure.x, across), figure.y and _axis_of(figure.y, up)


def _axis_of(axis: Axis, values: Sequence[float]) -> Axis:
    log = bool(axis.log) and (axis.log == "always" or is_wide(values))
    return replace(axis, log=log, limit=tuple(each for each in axis.limit if each > 0 or not log))


def _across(figure: Figure, mark: Mark) -> Iterator[float]:
    if isinstance(mark, Points):
        yield from mark.x
        yield from _known(ends_of(figure, mark)[0])
    elif isinstance(mark, Bars):
        yield from mark.values
    elif isinstance(mark, Boxes):
        for five in mark.five:
            yield from five
    elif isinstance(mark, Ridge):
        yield from mark.x


def ends_of(figure: Figure, mark: Points) -> tuple[Ends, Ends]:
    """Return the ends of the intervals of points along x, and those along y."""
    ends = mark.low, mark.high
    return ((mark.left, mark.right), ends) if figure.y else (ends, ((), ()))


def _known(ends: Ends) -> list[float]:
    return [end for several in ends for end in several if end is not None]


def legend_of(figure: Figure) -> list[Entry]:
    """Return the names of marks, if there are several; not those of marks whose rows have them in their own names."""
    found: dict[str, Entry] = {}
    for at, mark in enumerate(figure.marks):
        if isinstance(mark, Points) and mark.listed and not _is_in_rows(figure, mark.name, map(round, mark.y)):
            runs = not figure.rows and len(mark.x) > 1 and list(mark.x) == sorted(mark.x)
            found.setdefault(mark.name, Entry(mark.name, at, runs))
        elif isinstance(mark, Bars | Boxes | Ridge):
            rows = [mark.at] if isinstance(mark, Ridge) else mark.at
            is_kind = isinstance(mark, Bars) and mark.stacked
            if is_kind or not _is_in_rows(figure, mark.name, rows):
                found.setdefault(mark.name, Entry(mark.name, at, runs=False))
    return list(found.values()) if len(found) > 1 else []


def _is_in_rows(figure: Figure, name: str, rows: Iterable[int]) -> bool:
    return bool(figure.rows) and all(f" {name} " in f" {figure.rows[row]} " for row in rows)


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page: sentences, then figures and tables; `points` is a list of short statements."""

    key: str
    title: str
    lead: tuple[str, ...] = ()
    parts: tuple[Figure | Listing, ...] = ()
    points: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()


def figures_of(sections: Iterable[Section | None]) -> list[Figure]:
    """Return the figures of sections, in order."""
    return [part for each in sections if each for part in each.parts if isinstance(part, Figure)]


@dataclass(frozen=True, slots=True)
class Card:
    """An answer at the top of the page: the verdict, a sentence with its subject, the figure, and what it means.

    The `explanation`, if there is one, says where the difference comes from; the section `kernels` shows it.
    """

    verdict: Verdict | Literal["none"]
    word: str
    sentence: str
    figure: str
    detail: str
    explanation: str = ""


@dataclass(frozen=True, slots=True)
class Doubt:
    """What one should know before believing the answer, and the key of the section with the details."""

    text: str
    section: str


@dataclass(frozen=True, slots=True)
class Page:
    """The whole page; `undoubted` is what is known if there is no doubt.

    The first screen has the `picture` of the answer, and of each side in what it differs, then what all have in common.
    `evidence` is the table by which the records can be recognised; with it, the print has lines to sign.
    """

    title: str
    subtitle: str
    cards: tuple[Card, ...]
    doubts: tuple[Doubt, ...]
    sections: tuple[Section, ...]
    undoubted: str = "No trial failed or is missing, and none is known to have been disturbed or is unsteady."
    picture: Figure | None = None
    sides: tuple[tuple[str, str], ...] = ()
    evidence: Listing | None = None

    @property
    def figures(self) -> list[Figure]:
        """The picture and the figures of all sections, in order."""
        return [*filter(None, [self.picture]), *figures_of(self.sections)]


def readable(text: str) -> str:
    """Return the text with line breaks and tabs as spaces, and other control characters escaped."""
    return clean(_BREAKS.sub(" ", text))


def plain(part: Any) -> Any:
    """Return the page, or a part of it, as values for JSON: of a table, its columns and its rows of raw values."""
    if isinstance(part, tuple | list):
        return [plain(inner) for inner in part]
    if not is_dataclass(part) or isinstance(part, type):
        return part
    names = [field.name for field in fields(part)]
    if isinstance(part, Table):
        names = ["columns", "rows", "rest", "marked"]
    elif isinstance(part, Column):
        names = ["name", "unit", "numeric", "command", "prose"]
    return {name: plain(getattr(part, name)) for name in names}
