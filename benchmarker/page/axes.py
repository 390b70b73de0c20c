"""What every drawing of a figure needs: which axes are logarithmic, what they reach, and the names to explain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from benchmarker.page.page_model import Bars, Boxes, Figure, Points, Ridge

if TYPE_CHECKING:
    from benchmarker.page.page_model import Axis, Mark

WIDE = 8
"""Ratio of the largest to the least value from which an axis is logarithmic."""


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
    up = [y for mark in points for y in (*mark.y, *_ends(mark))]
    return _drawn(figure.x, across), figure.y and _drawn(figure.y, up)


def _drawn(axis: Axis, values: Sequence[float]) -> Axis:
    log = bool(axis.log) and (axis.log == "always" or is_wide(values))
    return replace(axis, log=log, limit=tuple(each for each in axis.limit if each > 0 or not log))


def _across(figure: Figure, mark: Mark) -> Iterator[float]:
    if isinstance(mark, Points):
        yield from mark.x
        yield from () if figure.y else _ends(mark)
    elif isinstance(mark, Bars):
        yield from mark.values
    elif isinstance(mark, Boxes):
        for five in mark.five:
            yield from five
    elif isinstance(mark, Ridge):
        yield from mark.x


def _ends(mark: Points) -> list[float]:
    """Return the ends of the intervals of points."""
    return [end for end in (*mark.low, *mark.high) if end is not None]


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
