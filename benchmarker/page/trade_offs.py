"""Trade-offs: throughput against energy, and both against numeric error, within the same work."""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from benchmarker.api.precision import UNIT_ROUNDOFF
from benchmarker.comparing.pareto import by_work, front
from benchmarker.formatting import count, si
from benchmarker.page.page_model import Axis, Figure, Listing, Points, Section, searchable
from benchmarker.page.study import MOST_DRAWN, named
from benchmarker.tables.table import Column, Table, number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarker.api.metric import Metric
    from benchmarker.comparing.pareto import Candidate, Front
    from benchmarker.page.study import Group, Study


class Trade(NamedTuple):
    """Two metrics that are traded for each other, each with its name in words and the title of its axis."""

    y: str
    name: str
    y_axis: str
    x: str
    of_x: str
    x_axis: str


AGAINST = (
    Trade("samples_per_s", "Throughput", "samples/s", "samples_per_J", "energy", "samples/J"),
    Trade("samples_per_s", "Throughput", "samples/s", "error", "numeric error", "largest relative error"),
    Trade("samples_per_J", "Energy efficiency", "samples/J", "error", "numeric error", "largest relative error"),
)
LEAST_ERROR = 2.0**-53
"""The unit roundoff of the reference, fp64: it shows no smaller error, so that an exact result is drawn there."""
ROUNDOFFS = 3
"""Unit roundoffs of the lowest type up to which errors are rounding alone."""
MOST_FIGURES = 12
MOST_LABELLED = 12


def fronts(study: Study) -> Section | None:
    """Return for each of these metrics the table of all configurations, and a figure for each work with several."""
    parts = [part for each in AGAINST for part in _parts(study, each)]
    lead = (
        "Only configurations of the same work are compared: problem, mode, precision and parameters are equal. One is "
        "Pareto-optimal if no other is at least as good in both metrics and better in one. Against the error, all "
        "precisions are compared with each other. Medians over trials are compared; their uncertainty is not taken "
        "into account."
    )
    return Section("pareto", "Trade-offs", (lead,), tuple(parts)) if parts else None


def _parts(study: Study, trade: Trade) -> list[Figure | Listing]:
    metrics = [trade.y, trade.x]
    fronts = [
        (made, groups)
        for groups in by_work(study.groups, metrics)
        if len(groups) > 1
        and len((made := front(groups, metrics, study.derive)).points) > 1
        and not (trade.x == "error" and _is_rounding(groups))
    ]
    if not fronts:
        return []
    tables = [_table(study, made.points, trade, made.metrics) for made, _ in fronts]
    figures = [
        _figure(study, at, made, table, trade, _emulated(groups) if trade.x == "error" else "")
        for at, ((made, groups), table) in enumerate(zip(fronts[:MOST_FIGURES], tables, strict=False))
    ]
    if len(fronts) == 1:
        return [*figures]
    left = (
        f"Only the first {MOST_FIGURES} of {len(fronts)} problems and their options have a figure above."
        if len(fronts) > MOST_FIGURES
        else ""
    )
    table = replace(tables[0], rows=tuple(row for each in tables for row in each.rows))
    return [*figures, searchable(f"{trade.name} against {trade.of_x}: all configurations", table, left, folded=True)]


def _emulated(groups: Sequence[Group]) -> str:
    """Return the errors of formats that are emulated, which have nothing to trade them for."""
    errors = [
        f"{group.label} {median(record.check.error for record in group.ok if record.check):.2g}"
        for group in groups
        if group.ok and group.ok[0].case.is_emulated
    ]
    return f"Emulated, so that there is an error and no speed: {', '.join(errors)}." if errors else ""


def _table(study: Study, points: Sequence[Candidate[Group]], trade: Trade, metrics: Sequence[Metric]) -> Table:
    return Table.of_columns(
        [
            *named(study, [point.configuration for point in points]),
            (number(trade.y, metrics[0].unit), [point.values[0] for point in points]),
            (number(trade.x, metrics[1].unit), [point.values[1] for point in points]),
            (Column("optimal"), [point.optimal for point in points]),
        ]
    )


def _is_rounding(groups: Sequence[Group]) -> bool:
    """Whether all errors of the same work are so small that they differ by rounding in the same precision only."""
    records = [record for group in groups for record in group.ok]
    return len({record.case.precision for record in records}) == 1 and all(
        record.check.error <= ROUNDOFFS * UNIT_ROUNDOFF[record.types.lowest]
        for record in records
        if record.check and record.types
    )


def _figure(
    study: Study,
    at: int,
    front: Front[Group],
    table: Table,
    trade: Trade,
    note: str,
) -> Figure:
    shown = sorted(front.points, key=lambda point: not point.optimal)[:MOST_DRAWN]
    log = trade.x == "error" and any(point.values[1] > 0 for point in shown)
    least = LEAST_ERROR if log else 0.0
    marks: list[Points] = []
    for point in shown:
        group = point.configuration
        marks.append(
            Points(
                f"{group.side or group.label}{'' if point.optimal else ', not optimal'}",
                group.series if len(study.sides) > 1 else len(marks),
                (max(point.values[1], least),),
                (point.values[0],),
                (
                    f"{group.label}: {si(point.values[0], front.metrics[0].unit)} {trade.y_axis}, "
                    f"{point.values[1]:.3g} {trade.x_axis}",
                ),
                look="dots" if point.optimal else "hollow",
                labels=(group.label,) if len(shown) <= MOST_LABELLED else (),
                listed=len(study.sides) > 1,
            )
        )
    total = len(front.points)
    notes = [
        f"Only {len(shown)} of {total} configurations are drawn, optimal ones first; the data table has all."
        if len(shown) < total
        else "",
        f"{count(front.left_out, 'configuration has', 'configurations have')} no value of one of the two metrics."
        if front.left_out
        else "",
        note,
        f"Errors below {LEAST_ERROR:.1e} are drawn there: the reference, in fp64, shows none that are smaller."
        if any(point.values[1] < least for point in shown)
        else "",
    ]
    better = "to the right and above" if front.metrics[1].better == "higher" else "to the left and above"
    case = front.points[0].configuration
    precision = case.records[0].case.precision if trade.x == "error" else ""  # there, all precisions are one work
    of = " ".join(word for word in case.case.split() if word != precision)
    return Figure(
        f"pareto-{'energy-' * (trade.y == 'samples_per_J')}{trade.x}-{at}",
        f"{trade.name} against {trade.of_x}" + (f", {of}" if of else ""),
        f"Better is {better}. Filled marks are Pareto-optimal.",
        Axis(trade.x_axis, log=log, limit=() if log else (0.0,)),
        tuple(marks),
        table,
        y=Axis(trade.y_axis, log=log, limit=() if log else (0.0,)),
        left_out=" ".join(filter(None, notes)),
    )
