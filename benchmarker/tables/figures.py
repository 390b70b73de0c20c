"""What stands in a cell: the median over trials, or why there is none; what the verdicts on cells are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarker.api.case import Case
from benchmarker.api.errors import UserError
from benchmarker.api.metric import Metric
from benchmarker.api.problem import parameter_count_of
from benchmarker.comparing.judge import compare
from benchmarker.comparing.matching import Match
from benchmarker.comparing.results import Comparison, Rules
from benchmarker.formatting import one_line
from benchmarker.hooks import parameters, registry
from benchmarker.hooks.metrics import Derive, metric_of
from benchmarker.hooks.names import word
from benchmarker.records.factors import text
from benchmarker.records.record import Record
from benchmarker.records.sides import Side
from benchmarker.stats.median_interval import median_spreads
from benchmarker.tables.grid import Grid, Key, Place

PARAMETERS = "parameters"
"""The value that is no metric: the number of trained parameters of the case's problem."""
FAILURES = {
    "out_of_memory": "out of memory",
    "timeout": "timed out",
    "check": "wrong result",
    "exception": "failed",
    "killed": "killed",
    "partner": "partner failed",
    "skipped": "skipped",
    "preempted": "preempted",
}
"""Why a cell has no value, by the kind of failure of its trials."""


@dataclass(frozen=True, slots=True)
class Figure:
    """The value of a cell: the median over `trials` of it, and the ends of its spread if it has one.

    If there is no value, `failure` says in a word or two why all trials failed, or `reason` why the metric is null.
    """

    value: float | None
    low: float | None
    high: float | None
    trials: int
    failure: str
    reason: str


@dataclass(frozen=True, slots=True)
class Figures:
    """A value in all cells that have trials.

    `spread` says what the spreads are, `95% interval` or `range`; it is empty if the value is not measured.
    """

    name: str
    unit: str
    better: str
    spread: str
    cells: Mapping[Place, Figure]

    @property
    def typical(self) -> float:
        """The median of the values, by which the prefix of the unit is chosen; 0 if there is none."""
        return median([each.value for each in self.cells.values() if each.value is not None] or [0.0])


def figures(grid: Grid, name: str, derive: Derive) -> Figures:
    """Return a metric, or the number of parameters, in each cell. Raises `UserError` if no metric has the name."""
    found: dict[Place, list[Metric]] = {}
    for place, records in grid.cells.items():
        good = [record for record in records if record.error is None]
        of = records[:1] if name == PARAMETERS else good
        found[place] = [_metric(record, name, derive) for record in of]
    values = {place: [each.value for each in several if each.value is not None] for place, several in found.items()}
    what, ends = ("", None) if name == PARAMETERS else median_spreads(list(values.values()))
    cells = {}
    for place, spread in zip(values, ends or [None] * len(values), strict=True):
        own, (low, high) = values[place], spread or (None, None)
        kinds = [record.error.kind for record in grid.cells[place] if record.error]
        failure = "" if found[place] else FAILURES[next((kind for kind in kinds if kind != "skipped"), "skipped")]
        reason = "" if own or failure else next((each.reason for each in found[place] if each.reason), "")
        cells[place] = Figure(median(own) if own else None, low, high, len(own), failure, reason)
    first = next((each for several in found.values() for each in several if each.unit), Metric(None, "", "lower"))
    return Figures(name, first.unit, first.better, what, cells)


def _metric(record: Record, name: str, derive: Derive) -> Metric:
    return _parameters(record.case) if name == PARAMETERS else metric_of(record, name, derive(record))


def _parameters(case: Case) -> Metric:
    """Return the number of trained parameters of a case, or why it is not known."""
    try:
        count = parameter_count_of(parameters.convert(registry.problem(case.problem), case.params))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a plugin's mistake costs its counts alone
        return Metric(None, "", "lower", one_line(f"problem.{case.problem}: {error}"))
    return Metric(count, "", "lower", None if count is not None else f"{case.problem} has no trained parameters")


@dataclass(frozen=True, slots=True)
class Judged:
    """Comparisons made together; each belongs to a cell, the contender."""

    places: tuple[Place, ...] = ()
    comparisons: tuple[Comparison, ...] = ()


@dataclass(frozen=True, slots=True)
class Baseline:
    """What the columns of a table are compared with: its name, and the baseline's column of each other one."""

    name: str
    columns: Mapping[Key, Key]


@dataclass(frozen=True, slots=True)
class Value:
    """A value of all cells, the comparisons for the best of each row, and those with the baseline if there is one.

    `bold` are the cells that are better than each they were compared with, by verdicts that are not provisional.
    """

    figures: Figures
    best: Judged
    bold: frozenset[Place]
    baseline: Baseline | None
    difference: Judged


def judged(grid: Grid, of: Figures, baseline: Baseline | None, rules: Rules, derive: Derive) -> Value:
    """Return a value with the comparisons of its cells; a value that is not measured has none."""
    if not of.spread:
        return Value(of, Judged(), frozenset(), None, Judged())
    best = _best_of_rows(grid, of, rules, derive)
    beaten = {
        place
        for place, each in zip(best.places, best.comparisons, strict=True)
        if each.verdict not in ("faster", "better") or each.provisional
    }
    difference = _differences(grid, of, baseline, rules, derive) if baseline else Judged()
    return Value(of, best, frozenset(best.places) - beaten, baseline, difference)


def _best_of_rows(grid: Grid, of: Figures, rules: Rules, derive: Derive) -> Judged:
    """Compare the best cell of each row with all others that do the same work, in FLOPs and samples by formula.

    All comparisons are corrected together. That the best is chosen first makes no false verdict more likely: of k equal
    cells, each is chosen with one of k - 1 comparisons, all of which are corrected for.
    """
    sign = 1 if of.better == "lower" else -1
    pairs = []
    for row in grid.rows:
        alike: dict[tuple[int | None, int] | None, list[tuple[float, Place]]] = {}
        for column in grid.columns:
            found = of.cells.get((row, column))
            if found and found.value is not None:
                alike.setdefault(_work(grid.cells[row, column]), []).append((sign * found.value, (row, column)))
        for group in alike.values():
            best = min(group, key=lambda pair: pair[0])[1]
            pairs += [(other, best) for _, other in group if other != best]
    return _compared(grid, pairs, rules, derive)


def _differences(grid: Grid, of: Figures, baseline: Baseline, rules: Rules, derive: Derive) -> Judged:
    """Compare each cell with that of its row in the baseline's column, if both have values."""
    pairs = [
        ((row, baseline.columns[column]), (row, column))
        for row in grid.rows
        for column in grid.columns
        if column in baseline.columns
        and all(
            (found := of.cells.get((row, at))) and found.value is not None for at in (baseline.columns[column], column)
        )
    ]
    return _compared(grid, pairs, rules, derive)


def baseline_of(grid: Grid, wanted: str) -> Baseline:
    """Return the columns of a baseline: those that differ from others only in having the wanted value.

    The value is one of a factor of the columns, such as `fp32` or `precision=fp32`. Raises `UserError` if there is no
    such column, or if several factors have the value.
    """
    if not grid.column_factors:
        raise UserError(f"--difference={wanted}: the table has no columns of cases; name their factors with --columns")
    found = {
        at: column[at]
        for at, name in enumerate(grid.column_factors)
        for column in grid.columns
        if wanted in (text(column[at]), f"{name}={text(column[at])}")
    }
    if not found:
        values = dict.fromkeys(text(value) for column in grid.columns for value in column)
        raise UserError(f"--difference={wanted}: no column has this value; there are: {', '.join(values)}")
    if len(found) > 1:
        several = " or ".join(f"{grid.column_factors[at]}={text(value)}" for at, value in found.items())
        raise UserError(f"--difference={wanted}: write {several}")
    ((at, value),) = found.items()
    base = {column: (*column[:at], value, *column[at + 1 :]) for column in grid.columns if column[at] != value}
    columns = {column: of for column, of in base.items() if of in grid.columns}
    name = grid.column_factors[at]
    return Baseline(grid.told(name, value, word(name, value)), columns)


def _compared(grid: Grid, pairs: Sequence[tuple[Place, Place]], rules: Rules, derive: Derive) -> Judged:
    """Judge pairs of baseline and contender together."""
    matches = []
    for pair in pairs:
        baseline, contender = (Side(grid.name(place), grid.cells[place]) for place in pair)
        matches.append(Match({}, baseline, contender, contender.name))
    return Judged(tuple(pair[1] for pair in pairs), tuple(compare(matches, rules, derive).comparisons))


def _work(records: Sequence[Record]) -> tuple[int | None, int] | None:
    """Return the work of a step: FLOPs, None if nothing tells them, and samples."""
    cost = next((record.cost for record in records if record.cost), None)
    return (cost.flops, cost.samples) if cost else None
