"""`benchmarker pareto`."""

from __future__ import annotations

from pathlib import Path

import click

from benchmarker.api.errors import UserError
from benchmarker.cli.display.cases import case_columns
from benchmarker.cli.display.output import json_option, print_json, print_table, print_text, wide_option
from benchmarker.comparing.diagnosis import skewed
from benchmarker.comparing.pareto import front
from benchmarker.formatting import clean, count, si
from benchmarker.hooks.metrics import load_metrics
from benchmarker.records import store


@click.command("pareto")
@click.argument("results", metavar="RESULT...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--metric",
    "names",
    metavar="NAME[,NAME...]",
    default="samples_per_s,host_peak_rss_bytes",
    show_default=True,
    help="Metrics that `show` prints; each is judged in its better direction.",
)
@wide_option
@json_option
@store.uncollected()
def command(results: tuple[Path, ...], names: str, wide: bool, as_json: bool) -> int:
    """Mark the Pareto-optimal configurations.

    A configuration is Pareto-optimal if no other one is at least as good in every metric and better in one.

    RESULT is a record, the folder of a run, or a folder of runs. The medians over trials are compared; use `compare`
    to test whether two configurations really differ. The exit status is 1 if a file cannot be read.
    """
    metrics = [name.strip() for name in names.split(",") if name.strip()]
    if not metrics:
        raise UserError("--metric names no metric")
    records, faults = store.read(list(results))
    for fault in faults:
        click.echo(f"benchmarker: cannot read {clean(str(fault))}", err=True)
    if not records:
        raise UserError("no record was read; name records, runs, or folders of runs")
    found = front(records, metrics, load_metrics(results))
    if as_json:
        print_json(
            [
                {
                    "configuration": dict(point.configuration.factors),
                    "metrics": dict(zip(metrics, point.values, strict=True)),
                    "trials": len(point.configuration.records),
                    "optimal": point.optimal,
                }
                for point in found.points
            ]
        )
        return 1 if faults else 0
    points = sorted(found.points, key=lambda point: point.values)
    cases = case_columns([point.configuration.factors for point in points], wide=wide)
    rows = [
        [
            *own,
            *(si(value, metric.unit) for value, metric in zip(point.values, found.metrics, strict=True)),
            "optimal" if point.optimal else "",
        ]
        for point, own in zip(points, cases.cells, strict=True)
    ]
    print_table([*cases.headings, *metrics, ""], rows, drop=metrics[:0:-1], wide=wide)
    work = {record.cost.flops for point in found.points for record in point.configuration.records if record.cost}
    if len(work) > 1:
        print_text("note: a step is not the same work in all of them; --metric=flop_per_s compares rates", "  ")
    for note in skewed([record for point in found.points for record in point.configuration.records]):
        print_text(f"note: {note}", "  ")
    if found.left_out:
        print_text(
            f"left out: {count(found.left_out, 'configuration')} without a value of the metric "
            "(such as memory in a duet)",
            "  ",
        )
    return 1 if faults else 0
