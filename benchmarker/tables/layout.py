"""Lay out the cells of a grid as a table: headings with units, and values with the digits that matter."""

import math
from collections.abc import Sequence
from typing import Any

from benchmarker.comparing.formatting import measure
from benchmarker.comparing.results import Comparison, Rules
from benchmarker.formatting import decimals, scale
from benchmarker.records.factors import text
from benchmarker.tables.figures import PARAMETERS, Figure, Figures, Value
from benchmarker.tables.grid import Grid, Key, described
from benchmarker.tables.notes import notes_on, what_bold_means
from benchmarker.tables.table import Cell, Column, Shown, Table

MISSING = "–"
DIGITS = 4
"""Significant digits of a value without a spread."""
LEAST_PLAIN = 1e-4
"""Values below it, such as numeric errors, have an exponent."""
MOST_DIGITS = 6
"""Largest number of significant digits of a value, however narrow its spread."""
MILLIONS = 1e6, "millions"
"""The unit of numbers of parameters, as models are described."""
_NAMED = ("1", "1/s", "1/J")
"""Units that the name of the value tells: samples/s."""
_MARKS = {"same": " =", "undecided": " ?"}
"""What stands after a difference in percent, by its verdict."""


_Part = tuple[Column, Sequence[Cell]]
"""A column and its cell in each row."""


def laid_out(grid: Grid, values: Sequence[Value], rules: Rules, title: str | None, *, intervals: bool) -> Table:
    """Lay out the values of a grid; without `intervals`, they decide only how many digits are printed.

    A number of parameters that is the same in a whole row has one column. The default title is what all cases share.
    CSV has numbers in units without prefix, and the ends of intervals in columns of their own.
    """
    parts = [_label(grid, at, name) for at, name in enumerate(grid.row_factors)]
    whole = [each for each in values if _is_of_row(grid, each)]
    parts += [_of_row(grid, each.figures) for each in whole]
    inner = [each for each in values if each not in whole]
    alone = len(inner) == 1 and bool(grid.column_factors)
    for column in grid.columns:
        for each in inner:
            parts += _value(grid, each, column, alone=alone, intervals=intervals)
            if each.baseline and (base := each.baseline.columns.get(column)):
                parts += _difference(grid, each, column, base, alone=alone, intervals=intervals)
    named = measure(inner[0].figures.name) if len(inner) == 1 else ""
    headings = [column.heading for column, _ in parts if column.only != "data"]
    labels = len(grid.row_factors)
    return Table(
        tuple(column for column, _ in parts),
        tuple(zip(*(cells for _, cells in parts), strict=True)),
        title=": ".join(filter(None, [named, grid.shared])) if title is None else title,
        labels=labels,
        notes=tuple(notes_on(grid, values, rules, intervals=intervals)),
        bold=what_bold_means(values, rules),
        drop=tuple(headings[:labels:-1]),
    )


def _data(name: str, cells: Sequence[Any]) -> _Part:
    """Return a column that only CSV has."""
    return Column(name, only="data"), cells


def _unit(figures: Figures) -> tuple[float, str]:
    """Return the size and the name of the unit in which all cells of a value are printed."""
    if figures.name == PARAMETERS:
        return MILLIONS
    size, unit = scale(figures.typical, figures.unit)
    return size, "" if unit in _NAMED else unit


def _heading(figures: Figures, unit: str) -> str:
    return ", ".join(filter(None, [measure(figures.name), unit]))


def _label(grid: Grid, at: int, name: str) -> _Part:
    values = [row[at] for row in grid.rows]
    is_number = all(type(value) in (int, float) for value in values)
    cells = [Shown(value, grid.told(name, value, text(value))) for value in values]
    return Column(name, numeric=is_number, levels=(name,)), cells


def _is_of_row(grid: Grid, value: Value) -> bool:
    """Return whether a value is a number of parameters that is the same in all columns of each row."""
    return value.figures.name == PARAMETERS and all(
        len({each.value for each in _in_row(grid, value.figures, row)}) == 1 for row in grid.rows
    )


def _in_row(grid: Grid, figures: Figures, row: Key) -> list[Figure]:
    return [figures.cells[row, column] for column in grid.columns if (row, column) in figures.cells]


def _of_row(grid: Grid, figures: Figures) -> _Part:
    """Return the column of a value that is the same in all columns of each row."""
    size, unit = _unit(figures)
    found = [_in_row(grid, figures, row)[0] for row in grid.rows]
    cells = [Shown(each.value, MISSING if each.value is None else shown(each.value / size, None)) for each in found]
    return Column(figures.name, numeric=True, levels=(_heading(figures, unit),)), cells


def _value(grid: Grid, value: Value, column: Key, *, alone: bool, intervals: bool) -> list[_Part]:
    """Return the columns of a value; `alone` if it is the only one, so that its name stands in the title."""
    figures, (size, unit) = value.figures, _unit(value.figures)
    groups = grid.words(column)
    in_rows = [figures.cells.get((row, column)) for row in grid.rows]
    cells = []
    for row, of in zip(grid.rows, in_rows, strict=True):
        if of is None or of.value is None:
            failure = of.failure if of else ""
            cells.append(Shown(failure or None, failure or MISSING))
        else:
            ends = None if of.low is None or of.high is None else (of.low / size, of.high / size)
            told = shown(of.value / size, ends, interval=intervals)
            cells.append(Shown(of.value, told, best=(row, column) in value.bold))
    name = " ".join([*groups, figures.name])
    levels = (*groups, (alone and unit) or _heading(figures, unit))
    parts: list[_Part] = [(Column(name, numeric=True, levels=levels), cells)]
    if figures.spread and intervals:
        parts.append(_data(f"{name} low", [of and of.low for of in in_rows]))
        parts.append(_data(f"{name} high", [of and of.high for of in in_rows]))
    return parts


def _difference(grid: Grid, value: Value, column: Key, base: Key, *, alone: bool, intervals: bool) -> list[_Part]:
    """Return the columns of the difference from the column `base`: in percent, and in the unit of the value."""
    figures, (size, unit) = value.figures, _unit(value.figures)
    groups = grid.words(column)
    judged = dict(zip(value.difference.places, value.difference.comparisons, strict=True))
    compared = [judged.get((row, column)) for row in grid.rows]
    changes = [_change(*(figures.cells.get((row, at)) for at in (base, column))) for row in grid.rows]
    amounts = [
        MISSING if change is None else _rounded(change / size, _half(each, size))
        for change, each in zip(changes, compared, strict=True)
    ]
    name, what = " ".join([*groups, figures.name]), "" if alone else measure(figures.name)
    fields = {"ratio": "ratio", "ratio low": "low", "ratio high": "high", "verdict": "verdict"}
    absolute, relative = (" ".join(filter(None, [what, "Δ", of])) for of in (unit, "%"))
    shares = [Shown(None, _relative(each, intervals)) for each in compared]
    differences = [Shown(change, amount) for change, amount in zip(changes, amounts, strict=True)]
    return [
        (Column(f"{name} change", numeric=True, levels=(*groups, relative), only="print"), shares),
        *(
            _data(f"{name} {heading}", [getattr(each, field, None) for each in compared])
            for heading, field in fields.items()
        ),
        (Column(f"{name} difference", numeric=True, levels=(*groups, absolute)), differences),
    ]


def _change(before: Figure | None, after: Figure | None) -> float | None:
    if before is None or after is None or before.value is None or after.value is None:
        return None
    return after.value - before.value


def _half(each: Comparison | None, size: float) -> float | None:
    """Return half the interval of a difference in a unit of some size, from that of the ratio."""
    if each is None or each.low is None or each.high is None or each.baseline_value is None:
        return None
    return (each.high - each.low) / 2 * each.baseline_value / size


def _relative(each: Comparison | None, intervals: bool) -> str:
    """Return a difference in percent with its interval, and a mark if it is not one by its verdict."""
    if each is None or each.ratio is None:
        return MISSING
    ends = None if each.low is None or each.high is None else (_percent(each.low), _percent(each.high))
    return shown(_percent(each.ratio), ends, interval=intervals) + _MARKS.get(each.verdict, "")


def _percent(ratio: float) -> float:
    return 100 * (ratio - 1)


def shown(value: float, ends: tuple[float, float] | None, *, interval: bool = True) -> str:
    """Return a value with its spread, `12.3 ± 0.2`, which is the distance of its farther end.

    The spread decides how many digits are printed; without one, there are four significant digits.
    """
    half = max(value - ends[0], ends[1] - value) if ends else None
    told = _rounded(value, half)
    if not interval or not half:
        return told
    return f"{told} ± {half:.{len(told.partition('.')[2])}f}"


def _rounded(value: float, half: float | None) -> str:
    if not half and 0 < abs(value) < LEAST_PLAIN:
        return f"{value:.{DIGITS - 1}e}"
    if not half:
        return f"{value:z.{max(0, DIGITS - 1 - math.floor(math.log10(abs(value))))}f}" if value else "0"
    before = len(f"{abs(value):.0f}")
    return f"{value:z.{min(decimals(half), max(0, MOST_DIGITS - before))}f}"


def plain(grid: Grid, values: Sequence[Value], made: Table) -> dict[str, Any]:
    """Return the table as values for JSON: each cell with its value, its spread, and its comparison if it has one."""
    differences = [dict(zip(each.difference.places, each.difference.comparisons, strict=True)) for each in values]
    return {
        "title": made.title,
        "rows": grid.row_factors,
        "columns": grid.column_factors,
        "cells": [
            {
                "row": described(grid.row_factors, place[0]),
                "column": described(grid.column_factors, place[1]),
                "value": value.figures.name,
                "unit": value.figures.unit,
                "median": figure.value,
                "low": figure.low,
                "high": figure.high,
                "spread": value.figures.spread if figure.low is not None else None,
                "trials": figure.trials,
                "failure": figure.failure or None,
                "reason": figure.reason or None,
                "best": place in value.bold,
                "difference": compared.get(place),
            }
            for value, compared in zip(values, differences, strict=True)
            for place, figure in value.figures.cells.items()
        ],
        "bold": made.bold or None,
        "notes": made.notes,
    }
