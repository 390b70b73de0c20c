"""Trade-offs: throughput against energy and against numeric error, within the same work."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from benchmarker.api.precision import UNIT_ROUNDOFF
from benchmarker.comparing.pareto import by_work, front
from benchmarker.formatting import count, si
from benchmarker.page.page_model import Axis, Figure, Listing, Points, Section, searchable
from benchmarker.page.study import MOST_DRAWN, named
from benchmarker.tables.table import Column, Table, number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarker.comparing.pareto import Candidate, Front
    from benchmarker.page.study import Group, Study

AGAINST = (
    ("samples_per_J", "energy", "samples/J", False),
    ("error", "numeric error", "largest relative error", True),
)
"""What throughput is traded for: the metric, its name, its axis title, and whether the axis is logarithmic."""

ROUNDOFFS = 3
"""Unit roundoffs of the lowest type up to which errors are rounding alone."""
MOST_FIGURES = 12
MOST_LABELLED = 12


def fronts(study: Study) -> Section | None:
    """Return for each of these metrics the table of all configurations, and a figure for each work with several."""
    parts = [part for each in AGAINST for part in _parts(study, *each)]
    lead = (
        "Only configurations of the same work are compared: problem, mode, precision and parameters are equal. One is "
        "Pareto-optimal if no other is at least as good in both metrics and better in one. Against the error, all "
        "precisions are compared with each other. Medians over trials are compared; their uncertainty is not taken "
        "into account."
    )
    return Section("pareto", "Trade-offs", (lead,), tuple(parts)) if parts else None


def _parts(study: Study, metric: str, words: str, axis: str, log: bool) -> list[Figure | Listing]:
    metrics = ["samples_per_s", metric]
    fronts = [
        made
        for groups in by_work(study.groups, metrics)
        if len(groups) > 1
        and len((made := front(groups, metrics, study.derive)).points) > 1
        and not (metric == "error" and _is_rounding(groups))
    ]
    if not fronts:
        return []
    tables = [_table(study, made.points, metric, made.metrics[1].unit) for made in fronts]
    figures = [
        _figure(study, at, made, table, metric, words, axis, log)
        for at, (made, table) in enumerate(zip(fronts[:MOST_FIGURES], tables, strict=False))
    ]
    if len(fronts) == 1:
        return [*figures]
    left = (
        f"Only the first {MOST_FIGURES} of {len(fronts)} problems and their options have a figure above."
        if len(fronts) > MOST_FIGURES
        else ""
    )
    table = replace(tables[0], rows=tuple(row for each in tables for row in each.rows))
    return [*figures, searchable(f"Throughput against {words}: all configurations", table, left, folded=True)]


def _table(study: Study, points: Sequence[Candidate[Group]], metric: str, unit: str) -> Table:
    return Table.of_columns(
        [
            *named(study, [point.configuration for point in points]),
            (number("samples_per_s", "1/s"), [point.values[0] for point in points]),
            (number(metric, unit), [point.values[1] for point in points]),
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
    metric: str,
    words: str,
    axis: str,
    log: bool,
) -> Figure:
    shown = sorted(front.points, key=lambda point: not point.optimal)[:MOST_DRAWN]
    marks: list[Points] = []
    for point in shown:
        group = point.configuration
        marks.append(
            Points(
                f"{group.side or group.label}{'' if point.optimal else ', not optimal'}",
                group.series if len(study.sides) > 1 else len(marks),
                (point.values[1],),
                (point.values[0],),
                (f"{group.label}: {si(point.values[0], '1/s')} samples/s, {point.values[1]:.3g} {axis}",),
                look="dots" if point.optimal else "hollow",
                labels=(group.label,) if len(shown) <= MOST_LABELLED else (),
                listed=len(study.sides) > 1,
            )
        )
    if log and any(x <= 0 for mark in marks for x in mark.x):
        log = False  # an exact result cannot be shown on a logarithmic axis
    total = len(front.points)
    notes = [
        f"Only {len(shown)} of {total} configurations are drawn, optimal ones first; the data table has all."
        if len(shown) < total
        else "",
        f"{count(front.left_out, 'configuration has', 'configurations have')} no value of one of the two metrics."
        if front.left_out
        else "",
    ]
    better = "to the right and above" if front.metrics[1].better == "higher" else "to the left and above"
    of = front.points[0].configuration.case
    return Figure(
        f"pareto-{metric}-{at}",
        f"Throughput against {words}" + (f", {of}" if of else ""),
        f"Better is {better}. Filled marks are Pareto-optimal.",
        Axis(axis, log=log, limit=() if log else (0.0,)),
        tuple(marks),
        table,
        y=Axis("samples/s", limit=(0.0,)),
        left_out=" ".join(filter(None, notes)),
    )
