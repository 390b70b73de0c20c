"""Trade-offs: throughput against energy, and both against numeric error, within the same work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Any, NamedTuple

from benchmarker.api.metric import Metric
from benchmarker.api.precision import UNIT_ROUNDOFF
from benchmarker.comparing.pareto import Candidate, Front, by_work, front
from benchmarker.formatting import count, within
from benchmarker.page.page_model import Axis, Figure, Listing, Points, Section, searchable
from benchmarker.page.study import MEDIAN, MOST_DRAWN, Group, Study, named
from benchmarker.tables.table import Column, Table, number


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
            *(
                (number(f"{name}{end}", metric.unit), [(each.values[at], *each.intervals[at])[of] for each in points])
                for at, (name, metric) in enumerate(zip((trade.y, trade.x), metrics, strict=True))
                for of, end in enumerate(("", "_from", "_to"))
            ),
            (Column("optimal"), [point.optimal for point in points]),
            (number("trials"), [len(point.configuration.ok) for point in points]),
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


def _figure(study: Study, at: int, front: Front[Group], table: Table, trade: Trade, note: str) -> Figure:
    several = len(study.sides) > 1
    groups = [(point.configuration, point) for point in front.points]
    is_one = several and len({group.case for group, _ in groups}) == 1  # which the title names
    placed = [
        Placed(
            group.side if is_one else group.label, group.side or group.label, group.series if several else number, point
        )
        for number, (group, point) in enumerate(sorted(groups, key=lambda pair: not pair[1].optimal))
    ]
    case = front.points[0].configuration
    precision = case.records[0].case.precision if trade.x == "error" else ""  # there, all precisions are one work
    of = " ".join(word for word in case.case.split() if word != precision)
    titles, against_error = (trade.y_axis, trade.x_axis), trade.x == "error"
    figure = front_figure(placed, front.metrics, titles, table, against_error=against_error, is_listed=several)
    left = (
        f"{count(front.left_out, 'configuration has', 'configurations have')} no value of one of the two metrics."
        if front.left_out
        else ""
    )
    return replace(
        figure,
        key=f"pareto-{'energy-' * (trade.y == 'samples_per_J')}{trade.x}-{at}",
        title=f"{trade.name} against {trade.of_x}" + (f", {of}" if of else ""),
        left_out=" ".join(filter(None, (figure.left_out, left, note))),
    )


class Placed(NamedTuple):
    """A configuration among others of its work: label, name in the legend, colour, and its values of y and x."""

    label: str
    name: str
    series: int
    of: Candidate[Any]


def front_figure(
    placed: Sequence[Placed],
    metrics: Sequence[Metric],
    titles: tuple[str, str],
    table: Table,
    *,
    against_error: bool = False,
    is_listed: bool = False,
) -> Figure:
    """Return the first of two metrics over the second, of the first configurations; `titles` are those of the axes.

    Axes of values far apart are logarithmic; an error of 0 is drawn as one that the reference can show.
    """
    shown = placed[:MOST_DRAWN]
    least = LEAST_ERROR if against_error and any(each.of.values[1] > 0 for each in shown) else 0.0
    labelled = [each for each in shown if each.of.optimal or len(shown) <= MOST_LABELLED][:MOST_LABELLED]
    marks = []
    for each in shown:
        (low, high), (left, right) = each.of.intervals
        said = [
            f"{within(value, ends, metric.unit)} {title}"
            for value, ends, metric, title in zip(each.of.values, each.of.intervals, metrics, titles, strict=True)
        ]
        marks.append(
            Points(
                f"{each.name}{'' if each.of.optimal else ', not optimal'}",
                each.series,
                (max(each.of.values[1], least),),
                (each.of.values[0],),
                (f"{each.label}: {', '.join(said)}",),
                (low,),
                (high,),
                look="dots" if each.of.optimal else "hollow",
                labels=(each.label,) if each in labelled else (),
                listed=is_listed and len(labelled) < len(shown),
                left=(None if left is None else max(left, least),),
                right=(None if right is None else max(right, least),),
            )
        )
    notes = [
        f"Only {len(shown)} of {len(placed)} configurations are drawn, optimal ones first; the data table has all."
        if len(shown) < len(placed)
        else "",
        f"Errors below {LEAST_ERROR:.1e} are drawn there: the reference, in fp64, shows none that are smaller."
        if any(each.of.values[1] < least for each in shown)
        else "",
    ]
    higher, lower = ("to the right", "above"), ("to the left", "below")
    across, up = ((higher if metric.better == "higher" else lower)[at] for at, metric in enumerate(metrics[::-1]))
    return Figure(
        "pareto",
        f"{titles[0]} against {titles[1]}",
        f"Each mark is {MEDIAN}, along both axes. Better is {across} and {up}. Filled marks are Pareto-optimal.",
        Axis(titles[1], log=True, limit=(0.0,)),
        tuple(marks),
        table,
        y=Axis(titles[0], log=True, limit=(0.0,)),
        left_out=" ".join(filter(None, notes)),
    )
