"""A table: columns with units, rows of raw values, the notes under it; and how its headings and values become text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

from benchmarker.comparing.formatting import figure
from benchmarker.formatting import rounded, si

Value = str | int | float | bool | None
RATIO, P_VALUE = "ratio", "p"
"""The units of columns of ratios and of p-values, which have forms of their own."""
_UNIT = re.compile(r"(?<!_per)_(s|J|W|bytes)$")
"""The unit at the end of a metric's name; that of a rate belongs to it."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A value that is shown as `text`, in a colour (one of click's), or in bold as the best of its row."""

    value: Value
    text: str
    colour: str = ""
    best: bool = False


Cell = Value | Shown
NOTHING = Shown(None, "-")
"""A text that is not known or does not exist."""


def coloured(text: str, colour: str) -> Shown:
    """Return a text that a terminal shows in a colour."""
    return Shown(text, text, colour)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    `name` is that of its values in CSV, which have the unit that it ends in. `unit` is the unit of its numbers (`%` for
    shares), `numeric` is set if it has any. `form` says how numbers become text if the unit does not: a format or a
    function. `command` is set if its texts are commands, whose words are not broken across lines, `prose` if they are
    sentences. `levels` is its heading from the top down, if that is not its name: columns that share the upper levels
    stand below one of each. `only` is set for a column that stands only in `print`, or only in CSV as `data`.
    """

    name: str
    unit: str = ""
    numeric: bool = False
    command: bool = False
    prose: bool = False
    levels: tuple[str, ...] = ()
    only: Literal["", "print", "data"] = ""
    form: str | Callable[[Any], str] = ""

    @property
    def heading(self) -> str:
        """The heading in one line, such as `jax inference, ms`: units stand in the cells, except those of rates."""
        if self.levels:
            *groups, last = self.levels
            return ", ".join(filter(None, [" ".join(groups), last]))
        return metric_heading(self.name, bare=bool(self.unit)) if self.numeric else self.name


Filled = tuple[Column, Sequence[Cell]]
"""A column and its cell in each row."""


def number(
    name: str,
    unit: str = "",
    heading: str = "",
    form: str | Callable[[Any], str] = "",
    only: Literal["", "print", "data"] = "",
) -> Column:
    """Return a column of numbers; its heading is its name in words, unless one is given."""
    return Column(name, unit, numeric=True, levels=(heading,) if heading else (), form=form, only=only)


def interval(name: str, ends: Iterable[tuple[float | None, float | None] | None]) -> list[Filled]:
    """Return the columns that only CSV has: both ends of the interval of each value of a column."""
    several = [(None, None) if pair is None else pair for pair in ends]
    return [
        (number(f"{name} {end}", only="data"), [pair[at] for pair in several]) for at, end in enumerate(("low", "high"))
    ]


def spread(
    heading: str, name: str, ends: Sequence[tuple[float | None, float | None] | None], unit: str
) -> list[Filled]:
    """Return a column of the intervals of a column with a unit, which is only printed, and those that only CSV has."""
    texts = [
        NOTHING if pair is None or pair[0] is None or pair[1] is None else Shown(None, _span(pair[0], pair[1], unit))
        for pair in ends
    ]
    is_known = any(text is not NOTHING for text in texts)
    return [*([(Column(heading, only="print"), texts)] if is_known else []), *interval(name, ends)]


def _span(low: float, high: float, unit: str) -> str:
    """Return two ends with their unit, once if it is the same for both: `3.71–4.02 ms`."""
    one, two = (si(end, unit, 3) for end in (low, high))
    is_same = one.partition(" ")[2] == two.partition(" ")[2]
    return f"{one.partition(' ')[0] if is_same else one}–{two}"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of raw values, with a title, and the notes under them; the first `labels` columns name the rows.

    `rest` is a row that sums up the rows left out; `marked` rows are highlighted. Of an `ordered` table, the first rows
    may stand alone; `summed` is then the column whose sum over the others is told, and what this is a part of. `bold`
    says what bold means, empty if no cell could be. On a narrow terminal, the columns `drop` are left out, the least
    important first, and long texts in the columns `cut` are shortened; `remedy` says how to see what was left out. The
    headings of a table of names and values are not printed.
    """

    _repr_html_: ClassVar[Callable[[Table], str]]  # what a notebook shows, set by `formats`

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    rest: tuple[Cell, ...] | None = None
    marked: frozenset[int] = frozenset()
    title: str = ""
    notes: tuple[str, ...] = ()
    bold: str = ""
    labels: int = 1
    drop: tuple[str, ...] = ()
    cut: tuple[str, ...] = ()
    remedy: str = "--wide shows"
    headed: bool = True
    ordered: bool = False
    summed: tuple[str, str] | None = None

    @classmethod
    def of(
        cls,
        columns: Iterable[str | Column],
        rows: Iterable[Sequence[Cell]],
        *,
        drop: Iterable[str] = (),
        cut: Iterable[str] = (),
        remedy: str = "--wide shows",
        ordered: bool = False,
    ) -> Self:
        """Return a table whose columns are given by their names, if these say all about them."""
        return cls(
            tuple(Column(each) if isinstance(each, str) else each for each in columns),
            tuple(map(tuple, rows)),
            drop=tuple(drop),
            cut=tuple(cut),
            remedy=remedy,
            ordered=ordered,
        )

    @classmethod
    def of_columns(
        cls,
        filled: Sequence[Filled],
        *,
        drop: Iterable[str] = (),
        cut: Iterable[str] = (),
        remedy: str = "--wide shows",
        ordered: bool = False,
    ) -> Self:
        """Return a table of columns with their cells."""
        rows = zip(*(cells for _, cells in filled), strict=True)
        return cls.of((column for column, _ in filled), rows, drop=drop, cut=cut, remedy=remedy, ordered=ordered)

    @classmethod
    def facts(cls, rows: Iterable[Sequence[Cell]]) -> Self:
        """Return a table of names and values."""
        made = tuple(map(tuple, rows))
        names = ("name", "value", "note")[: len(made[0]) if made else 2]
        return cls(tuple(map(Column, names)), made, headed=False)

    @property
    def printed(self) -> tuple[tuple[Column, ...], tuple[tuple[Cell, ...], ...]]:
        """The columns that are printed, and their cells row by row."""
        return self._without("data")

    @property
    def data(self) -> tuple[list[str], list[list[Value]]]:
        """The names and the raw values of the columns that CSV has."""
        columns, rows = self._without("print")
        return [column.name for column in columns], [list(map(raw, row)) for row in rows]

    def first(self, top: int, remedy: str = "--top=0 shows") -> tuple[Table, str]:
        """Return an ordered table with its first rows, and what is said of the others, if any; 0 keeps all rows."""
        if not (self.ordered and 0 < top < len(self.rows)):
            return self, ""
        said = f"and {len(self.rows) - top} more"
        if self.summed:
            name, whole = self.summed
            at = next(at for at, column in enumerate(self.columns) if column.name == name)
            total = sum(value for row in self.rows[top:] if isinstance(value := raw(row[at]), int | float))
            said += f", {cell_text(total, self.columns[at])} {whole}".rstrip()
        return replace(self, rows=self.rows[:top]), f"{said}; {remedy} all"

    def _without(self, only: str) -> tuple[tuple[Column, ...], tuple[tuple[Cell, ...], ...]]:
        kept = [at for at, column in enumerate(self.columns) if column.only != only]
        return tuple(self.columns[at] for at in kept), tuple(tuple(row[at] for at in kept) for row in self.rows)

    def remarks(self, mark: str = "bold:") -> list[str]:
        """Return what stands under the table: what the mark of the best cells means, and the notes."""
        return [*([f"{mark} {self.bold}"] if self.bold else []), *self.notes]


def raw(cell: Cell) -> Value:
    """Return the value of a cell."""
    return cell.value if isinstance(cell, Shown) else cell


def metric_heading(name: str, *, bare: bool = True) -> str:
    """Return the name of a metric as a heading, without its unit if `bare` unless it is a rate: `step time`."""
    return (_UNIT.sub("", name) if bare else name).replace("_per_", "/").replace("_", " ")


def cell_text(cell: Cell, column: Column) -> str:
    """Return what stands in a cell as text."""
    if isinstance(cell, Shown):
        return cell.text
    if cell is None:
        return "-" if column.numeric else ""
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, str):
        return cell
    if column.form:
        return format(cell, column.form) if isinstance(column.form, str) else column.form(cell)
    if column.unit == RATIO:
        return figure(cell)
    if column.unit == P_VALUE:
        return f"{cell:.2g}"
    if column.unit == "%":
        return f"{cell:.1%}"
    if column.unit:
        return si(cell, column.unit)
    return str(cell) if isinstance(cell, int) else rounded(cell, 4)
