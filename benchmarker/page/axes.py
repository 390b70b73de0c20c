"""The axes of a figure: the values that they must show, and whether they are logarithmic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from benchmarker.page.page_model import Bars, Boxes, Figure, Points, Ridge, is_wide

if TYPE_CHECKING:
    from benchmarker.page.page_model import Axis, Mark


def is_log_across(figure: Figure) -> bool:
    """Return whether the axis of x is logarithmic: its values include the ends of intervals along x."""
    return _is_log(figure.x, [*figure.lines, *(x for mark in figure.marks for x in _across(figure, mark))])


def is_log_up(figure: Figure) -> bool:
    """Return whether the axis of y is logarithmic; never, if it has rows instead of values."""
    if figure.y is None:
        return False
    points = [mark for mark in figure.marks if isinstance(mark, Points)]
    return _is_log(figure.y, [y for mark in points for y in (*mark.y, *_ends(mark))])


def _is_log(axis: Axis, values: list[float]) -> bool:
    return bool(axis.log) and (axis.log == "always" or is_wide(values))


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
