"""What is on the page, as values: sections of text, tables and figures, before any markup."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from benchmarker.comparing.results import Verdict

Cell = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: `unit` is that of its numbers (`%` for shares); `numeric` where it holds any.

    `command` where texts are commands, whose words are not broken.
    """

    name: str
    unit: str = ""
    numeric: bool = False
    command: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of raw values. `rest` sums up what was left out of them; `marked` are rows to be seen first."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    rest: tuple[Cell, ...] | None = None
    marked: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Listing:
    """A table on the page; `folded` ones are opened by the reader, `searched` ones have a field to filter them."""

    title: str
    table: Table
    caption: str = ""
    folded: bool = False
    searched: bool = False


@dataclass(frozen=True, slots=True)
class Axis:
    """A numeric axis: what it shows, in which unit; `limit` are values that the axis must reach.

    A logarithmic one becomes linear where its values are close together, unless it is `always` logarithmic, as where
    lines are straight on such axes alone.
    """

    title: str
    unit: str = ""
    log: bool | Literal["always"] = False
    limit: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Bars:
    """Bars of one series, from 0, in the rows `at`; `low` and `high` end the interval, None where there is none."""

    name: str
    series: int
    at: tuple[int, ...]
    values: tuple[float, ...]
    low: tuple[float | None, ...] = ()
    high: tuple[float | None, ...] = ()
    stacked: bool = False


@dataclass(frozen=True, slots=True)
class Boxes:
    """Boxes of one series in the rows `at`: each is the 5th percentile, quartile, median, quartile, 95th percentile."""

    name: str
    series: int
    at: tuple[int, ...]
    five: tuple[tuple[float, float, float, float, float], ...]


@dataclass(frozen=True, slots=True)
class Points:
    """Points of one series.

    Where `y` are rows, `low` and `high` end intervals along x. `texts` say what each is
    when pointed at, `labels` stand beside them; `symbol` is of the series unless given;
    `listed` ones stand in the legend.
    """

    name: str
    series: int
    x: tuple[float, ...]
    y: tuple[float, ...]
    texts: tuple[str, ...] = ()
    low: tuple[float | None, ...] = ()
    high: tuple[float | None, ...] = ()
    look: Literal["dots", "line", "line and dots", "hollow", "small", "small dots"] = "dots"
    symbol: int | None = None
    labels: tuple[str, ...] = ()
    listed: bool = True


Mark = Bars | Boxes | Points


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure and the data behind it. With `rows` the vertical axis has these names, the first at the top.

    `lines` are values of x that are marked through all rows, `band` a stretch of x that is shaded.
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
    band: tuple[float, float] | None = None
    left_out: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page: sentences, then figures and tables; `points` are short statements in a list."""

    key: str
    title: str
    lead: tuple[str, ...] = ()
    parts: tuple[Figure | Listing, ...] = ()
    points: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Card:
    """A verdict at the top: its word, what it is about, the figure, and what that figure means."""

    verdict: Verdict | Literal["none"]
    about: str
    figure: str
    detail: str


@dataclass(frozen=True, slots=True)
class Page:
    """The whole page; `factors` are names and values that all trials share."""

    title: str
    subtitle: str
    cards: tuple[Card, ...]
    warnings: tuple[str, ...]
    factors: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...]
