"""Trade-offs: throughput against energy and against numeric error, with the Pareto-optimal configurations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarker.api.errors import UserError
from benchmarker.comparing.pareto import front
from benchmarker.formatting import count, si
from benchmarker.records.configurations import configurations
from benchmarker.report.page_model import Axis, Cell, Column, Figure, Points, Section, Table
from benchmarker.report.study import MOST_DRAWN

if TYPE_CHECKING:
    from benchmarker.comparing.pareto import Front
    from benchmarker.report.study import Study

AGAINST = (
    ("samples_per_J", "energy", "samples/J", False),
    ("numeric_error", "numeric error", "largest relative error", True),
)
"""What throughput is traded for: the metric, its name, its axis title, and whether the axis is logarithmic."""

MOST_LABELLED = 12


def fronts(study: Study) -> Section | None:
    """Return a figure for each of these metrics that trials have."""
    figures = [figure for each in AGAINST if (figure := _figure(study, *each))]
    return Section("pareto", "Trade-offs", (), tuple(figures)) if figures else None


def _figure(study: Study, metric: str, words: str, axis: str, log: bool) -> Figure | None:
    found: list[tuple[str, Front]] = []
    for result, records in study.results:
        if any(metric in study.derive(record) for record in records):
            try:
                found.append((result, front(records, ["samples_per_s", metric], study.derive)))
            except UserError:  # no configuration has both: nothing to draw
                continue
    if not found:
        return None
    labels = {group.records[0].trial_id: group.label for group in study.groups}
    marks: list[Points] = []
    rows: list[tuple[Cell, ...]] = []
    number = 0
    for series, (result, one) in enumerate(found):
        several = [(point, labels.get(point.configuration.records[0].trial_id, "")) for point in one.points]
        rows += [(label, result, *point.values, point.optimal) for point, label in several]
        shown = [each for each in several if each[0].optimal]
        shown += [each for each in several if not each[0].optimal]
        shown = shown[: max(0, MOST_DRAWN - number)]
        number += len(shown)
        of = f", {result}" if len(found) > 1 else ""
        for optimal in (True, False):
            these = sorted(
                (each for each in shown if each[0].optimal == optimal), key=lambda each: each[0].values[::-1]
            )
            if these:
                marks.append(
                    Points(
                        ("optimal" if optimal else "not optimal") + of,
                        series,
                        tuple(point.values[1] for point, _ in these),
                        tuple(point.values[0] for point, _ in these),
                        tuple(
                            f"{label}: {si(point.values[0], '1/s')} samples/s, {point.values[1]:.3g} {axis}"
                            for point, label in these
                        ),
                        look="line and dots" if optimal else "hollow",
                        labels=tuple(label for _, label in these) if len(rows) <= MOST_LABELLED else (),
                    )
                )
    if log and any(x <= 0 for mark in marks for x in mark.x):
        log = False  # an exact result cannot be shown on a logarithmic axis
    unit = found[0][1].metrics[1].unit
    missing = sum(one.left_out for _, one in found)
    notes = [
        f"Only {number} of {len(rows)} configurations are drawn, optimal ones first; the data table has all."
        if number < len(rows)
        else "",
        f"{count(missing, 'configuration has', 'configurations have')} no value of one of the two metrics."
        if missing
        else "",
        "The work per step is not the same in all configurations." if _unlike(study) else "",
        "The optimal configurations are determined separately for each result." if len(found) > 1 else "",
    ]
    columns = (
        Column("configuration"),
        Column("result"),
        Column("samples_per_s", "1/s", numeric=True),
        Column(metric, unit, numeric=True),
        Column("optimal"),
    )
    better = "to the right and above" if found[0][1].metrics[1].better == "higher" else "to the left and above"
    return Figure(
        f"pareto-{metric}",
        f"Throughput against {words}",
        f"Medians over trials; better is {better}. Filled dots are Pareto-optimal: no other configuration is at least "
        "as good in both metrics and better in one. The uncertainty of the medians is not taken into account.",
        Axis(axis, log=log, limit=() if log else (0.0,)),
        tuple(marks),
        Table(columns, tuple(rows)),
        y=Axis("samples/s", limit=(0.0,)),
        left_out=" ".join(filter(None, notes)),
    )


def _unlike(study: Study) -> bool:
    """Return whether the work per step differs between configurations."""
    return (
        len({record.cost.flops for group in configurations(study.records) for record in group.records if record.cost})
        > 1
    )
