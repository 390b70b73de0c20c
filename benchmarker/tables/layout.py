"""Lay out the cells of a grid as a sheet: headings with units, values with the digits that matter, notes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarker.comparing.diagnosis import doubts
from benchmarker.comparing.formatting import DOUBTS, likely, measure, percent
from benchmarker.formatting import count, decimals, part, scale
from benchmarker.records.configurations import text
from benchmarker.stats.median_interval import MIN_BLOCKS_FOR_INTERVAL
from benchmarker.tables.figures import PARAMETERS, bold
from benchmarker.tables.grid import described, words
from benchmarker.tables.sheet import Cell, Column, Sheet

if TYPE_CHECKING:
    from benchmarker.comparing.results import Comparison, Rules
    from benchmarker.tables.figures import Baseline, Figures, Judged
    from benchmarker.tables.grid import Grid, Key, Place

MISSING = "–"
_NAMED = ("1", "1/s", "1/J")
"""Units that the name of the value tells: samples/s."""
DIGITS = 4
"""Significant digits of a value without a spread."""
MOST_DIGITS = 6
"""Largest number of significant digits of a value, however narrow its interval."""
MOST_NAMED = 3
"""Largest number of cells that a note names."""
_PLAIN = {"out_of_memory", "timeout", "skipped"}
"""Kinds of failures that need no message."""
MILLIONS = 1e6, "millions"
"""The unit of numbers of parameters, as models are described."""


@dataclass(frozen=True, slots=True)
class Value:
    """A value of all cells, its comparisons for the best of each row, and those with the baseline if there is one."""

    figures: Figures
    best: Judged
    baseline: Baseline | None
    difference: Judged

    @property
    def unit(self) -> tuple[float, str]:
        """The size and the name of the unit in which all cells are printed."""
        if self.figures.name == PARAMETERS:
            return MILLIONS
        size, unit = scale(self.figures.typical, self.figures.unit)
        return size, "" if unit in _NAMED else unit


@dataclass(frozen=True, slots=True)
class _Part:
    """A printed column: its heading, its cell in each row as text and whether it is the best, and as plain values."""

    column: Column
    cell: Callable[[Key], Cell]
    plain: Mapping[str, Callable[[Key], Any]]


def sheet(grid: Grid, values: Sequence[Value], rules: Rules, title: str | None, *, intervals: bool) -> Sheet:
    """Lay out the values of a grid; without `intervals`, they decide only how many digits are printed."""
    parts = [_label(grid, at, name) for at, name in enumerate(grid.row_factors)]
    whole = [each for each in values if _is_of_row(grid, each)]
    parts += [_value(grid, each, grid.columns[0], of_row=True, intervals=intervals) for each in whole]
    inner = [each for each in values if each not in whole]
    for column in grid.columns:
        for each in inner:
            alone = len(inner) == 1 and bool(grid.column_factors)
            parts.append(_value(grid, each, column, alone=alone, intervals=intervals))
            if each.figures.spread and each.baseline and column in each.baseline.columns:
                parts += _difference(
                    grid, each, column, each.baseline.columns[column], alone=alone, intervals=intervals
                )
    told = measure(inner[0].figures.name) if len(inner) == 1 else ""
    return Sheet(
        title=": ".join(filter(None, [told, grid.shared])) if title is None else title,
        columns=tuple(each.column for each in parts),
        rows=tuple(tuple(each.cell(row) for each in parts) for row in grid.rows),
        labels=len(grid.row_factors),
        notes=tuple(_notes(grid, values, rules, intervals=intervals)),
        bold=_what_bold_means(values, rules),
        plain_headings=tuple(name for each in parts for name in each.plain),
        plain_rows=tuple(tuple(of(row) for each in parts for of in each.plain.values()) for row in grid.rows),
    )


def _is_of_row(grid: Grid, value: Value) -> bool:
    """Return whether a value is a number of parameters that is the same in all columns of each row."""
    if value.figures.name != PARAMETERS:
        return False
    found = (
        {value.figures.cells[row, at].value for at in grid.columns if (row, at) in grid.cells} for row in grid.rows
    )
    return all(len(each) == 1 for each in found)


def _label(grid: Grid, at: int, name: str) -> _Part:
    is_number = all(isinstance(row[at], int | float) and not isinstance(row[at], bool) for row in grid.rows)
    return _Part(Column((name,), is_number), lambda row: Cell(text(row[at])), {name: lambda row: row[at]})


def _value(
    grid: Grid, value: Value, column: Key, *, alone: bool = False, of_row: bool = False, intervals: bool
) -> _Part:
    """Return the column of a value; `alone` if it is the only one, so that its name stands in the title."""
    figures, (size, unit) = value.figures, value.unit
    groups = [] if of_row else words(grid.column_factors, column)
    named = measure(figures.name)
    last = (unit or named) if alone else ", ".join(filter(None, [named, unit]))
    best = bold(value.best)

    def figure(row: Key) -> Any:
        at = next((each for each in grid.columns if (row, each) in grid.cells), column) if of_row else column
        return figures.cells.get((row, at))

    def cell(row: Key) -> Cell:
        found = figure(row)
        if found is None or found.value is None:
            return Cell((found and found.failure) or MISSING)
        ends = None if found.low is None else (found.low / size, found.high / size)
        return Cell(shown(found.value / size, ends, interval=intervals), (row, column) in best and not of_row)

    def plain(row: Key) -> Any:
        found = figure(row)
        return None if found is None else found.failure or found.value

    name = " ".join([*groups, figures.name])
    ends = {
        f"{name} {end}": lambda row, end=end: getattr(figure(row), end, None)
        for end in (("low", "high") if figures.spread and intervals else ())
    }
    return _Part(Column((*groups, last)), cell, {name: plain, **ends})


def _difference(grid: Grid, value: Value, column: Key, base: Key, *, alone: bool, intervals: bool) -> list[_Part]:
    """Return the columns of the difference from the column `base`: in the unit of the value, and in percent."""
    figures, (size, unit) = value.figures, value.unit
    groups = words(grid.column_factors, column)
    judged = dict(zip(value.difference.places, value.difference.comparisons, strict=True))
    what = "" if alone else f"{measure(figures.name)} "

    def absolute(row: Key) -> float | None:
        before, after = (figures.cells.get((row, at)) for at in (base, column))
        if before is None or after is None or before.value is None or after.value is None:
            return None
        return after.value - before.value

    def of(row: Key) -> Comparison | None:
        return judged.get((row, column))

    def amount(row: Key) -> Cell:
        change, each = absolute(row), of(row)
        if change is None:
            return Cell(MISSING)
        half = None
        if each and each.low is not None and each.high is not None and each.baseline_value:
            half = (each.high - each.low) / 2 * each.baseline_value / size
        return Cell(_rounded(change / size, half))

    def relative(row: Key) -> Cell:
        each = of(row)
        if each is None or each.ratio is None:
            return Cell(MISSING)
        ends = None if each.low is None or each.high is None else (_percent(each.low), _percent(each.high))
        mark = {"same": " =", "undecided": " ?"}.get(each.verdict, "")
        return Cell(f"{shown(_percent(each.ratio), ends, interval=intervals)}{mark}")

    name = " ".join([*groups, figures.name])
    fields = ("ratio", "low", "high", "verdict")
    compared = {
        f"{name} {'ratio ' if field in ('low', 'high') else ''}{field}": lambda row, field=field: getattr(
            of(row), field, None
        )
        for field in fields
    }
    return [
        _Part(Column((*groups, f"{what}Δ {unit}".strip())), amount, {f"{name} difference": absolute}),
        _Part(Column((*groups, f"{what}Δ %")), relative, compared),
    ]


def _percent(ratio: float) -> float:
    return 100 * (ratio - 1)


def shown(value: float, ends: tuple[float, float] | None, *, interval: bool = True) -> str:
    """Return a value with its spread, `12.3 ± 0.2`, which is the distance of its farther end.

    The spread decides how many digits are printed; without one, there are four significant digits.
    """
    half = max(value - ends[0], ends[1] - value) if ends else None
    text = _rounded(value, half)
    if not interval or not half or half <= 0:
        return text
    places = len(text.partition(".")[2])
    return f"{text} ± {half:.{places}f}"


def _rounded(value: float, half: float | None) -> str:
    if not half or half <= 0:
        return f"{value:z.{max(0, DIGITS - 1 - math.floor(math.log10(abs(value))))}f}" if value else "0"
    before = len(f"{abs(value):.0f}")
    return f"{value:z.{min(decimals(half), max(0, MOST_DIGITS - before))}f}"


def _what_bold_means(values: Sequence[Value], rules: Rules) -> str:
    """Return what bold means, empty if no cells could be compared."""
    number = sum(len(each.best.comparisons) for each in values)
    if not number:
        return ""
    apart = " for each value" if sum(bool(each.best.comparisons) for each in values) > 1 else ""
    return (
        "better than each other cell of the row that does the same work, by its verdict; "
        f"{count(number, 'comparison')}, corrected together{apart} (Holm), level {percent(rules.alpha)}, δ {percent(rules.delta)}"
    )


def _notes(grid: Grid, values: Sequence[Value], rules: Rules, *, intervals: bool) -> list[str]:
    """Return what the table's numbers are, and what makes some of them doubtful."""
    measured = [each for each in values if each.figures.spread]
    found = [_spread(measured)] if measured and intervals else []
    for each in values:
        found += _on_differences(each, rules)
    for each in measured:
        about = f"{measure(each.figures.name)}, " if len(measured) > 1 else ""
        for what, judged in (("best of a row", each.best), ("Δ", each.difference)):
            found += [f"{about}{what}: {note}" for note in _on_methods(judged)]
    for note, places in _on_cells(grid, values).items():
        found.append(f"{_places(grid, places)}: {note}")
    return found


def _spread(values: Sequence[Value]) -> str:
    """Return what stands after ±, and over how many trials."""
    numbers = sorted({each.trials for value in values for each in value.figures.cells.values() if each.trials})
    if not numbers:
        return "no trial has a value"
    trials = f"{numbers[0]} to {numbers[-1]} trials" if len(numbers) > 1 else count(numbers[0], "trial")
    if numbers[-1] == 1:
        return "one trial of each case, so there is no interval"
    if any(each.figures.spread == "range" for each in values):
        few = f"fewer than {MIN_BLOCKS_FOR_INTERVAL} trials of a case allow no interval"
        return f"median over {trials} ± distance of the farthest trial; {few}"
    return f"median over {trials} ± its 95% interval (the farther end)"


def _on_differences(value: Value, rules: Rules) -> list[str]:
    """Return what the columns of differences are."""
    named = measure(value.figures.name)
    comparisons = value.difference.comparisons
    if not value.baseline or not value.figures.spread:
        return []
    if not comparisons:
        return [f"{named}: no cell has a counterpart in the baseline's column"]
    return [
        f"Δ is the difference from {value.baseline.name}: of the medians, and of the {named} in percent (by trials, ± its "
        f"{percent(comparisons[0].level)} interval); = is the same within {percent(rules.delta)}, ? is undecided; "
        f"{count(len(comparisons), 'comparison')} corrected together (Holm)"
    ]


def _on_methods(judged: Judged) -> list[str]:
    """Return why one may doubt comparisons: how they were made, how many are undecided or provisional."""
    comparisons = judged.comparisons
    found = [
        f"{part(len(of), len(comparisons), 'comparison')}: {why}"
        for method, why in DOUBTS.items()
        if (of := [each for each in comparisons if each.method == method])
    ]
    if undecided := [each for each in comparisons if each.verdict == "undecided" and each.p_value is not None]:
        enough = [each.enough for each in undecided]
        most = None if None in enough else max(filter(None, enough))
        remedy = likely(most, is_paired=all(each.method == "paired" for each in undecided))
        found.append(f"{part(len(undecided), len(comparisons), 'comparison', 'is', 'are')} undecided; {remedy} all")
    if provisional := [each for each in comparisons if each.provisional]:
        found.append(
            f"{part(len(provisional), len(comparisons), 'comparison', 'is', 'are')} provisional: most trials of a side "
            "were disturbed; no cell is bold by these"
        )
    return found


def _on_cells(grid: Grid, values: Sequence[Value]) -> dict[str, list[Place]]:
    """Return what makes cells doubtful or empty, each with its cells."""
    found: dict[str, list[Place]] = {}
    kinds: dict[str, list[Place]] = {}
    for place, records in grid.cells.items():
        for kind in doubts([records]):
            kinds.setdefault(kind, []).append(place)
        errors = [record.error for record in records if record.error]
        kinds_of = {error.kind for error in errors}
        if errors and len(errors) < len(records):
            failed = part(len(errors), len(records), "trial")
            found.setdefault(f"{failed} failed ({errors[0].message})", []).append(place)
        elif errors and (kinds_of == {"skipped"} or not kinds_of & _PLAIN):
            found.setdefault(errors[0].message, []).append(place)
    for kind, places in kinds.items():
        found[doubts([grid.cells[place] for place in places])[kind]] = places
    for value in values:
        for place, figure in value.figures.cells.items():
            if figure.reason:
                found.setdefault(f"no {measure(value.figures.name)}: {figure.reason}", []).append(place)
    return found


def _places(grid: Grid, places: Sequence[Place]) -> str:
    if len(places) == len(grid.cells):
        return "all cells"
    named = "; ".join(map(grid.name, places[:MOST_NAMED]))
    return named + (f"; {len(places) - MOST_NAMED} more" if len(places) > MOST_NAMED else "")


def plain(grid: Grid, values: Sequence[Value], made: Sheet) -> dict[str, Any]:
    """Return the table as values for JSON: each cell with its value, its spread, and its comparisons."""
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
                "best": place in bold(value.best),
                "difference": next(iter(value.difference.of(place)), None),
            }
            for value in values
            for place, figure in value.figures.cells.items()
        ],
        "bold": made.bold or None,
        "notes": made.notes,
    }
