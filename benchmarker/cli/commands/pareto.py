"""`benchmarker pareto`."""

from __future__ import annotations

from pathlib import Path

import click

from benchmarker.api.errors import UserError
from benchmarker.cli.display.cases import case_columns
from benchmarker.cli.display.output import json_option, print_json, print_table, print_text, wide_option
from benchmarker.cli.options.results import pool_option, print_mixed, read_cases
from benchmarker.comparing.diagnosis import executions, skewed
from benchmarker.comparing.pareto import by_work, front
from benchmarker.formatting import count, part, si
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
@pool_option
@wide_option
@json_option
@store.uncollected()
def command(results: tuple[Path, ...], names: str, pool: bool, wide: bool, as_json: bool) -> int:
    """Mark the Pareto-optimal configurations.

    A configuration is Pareto-optimal if no other one of the same work (problem, mode, precision and parameters) is at
    least as good in every metric and better in one.

    RESULT is a record, the folder of a run, or a folder of runs; of several folders, each is a side. The medians over
    trials are compared; use `compare` to test whether two configurations really differ. The exit status is 1 if a file
    cannot be read.
    """
    metrics = [name.strip() for name in names.split(",") if name.strip()]
    if not metrics:
        raise UserError("--metric names no metric")
    cases, derive = read_cases(results, pool), load_metrics(results)
    fronts = [front(of_work, metrics, derive) for of_work in by_work(cases)]
    points = [(point, each) for each in fronts for point in sorted(each.points, key=lambda point: point.values)]
    if not points:
        raise UserError(f"no configuration has a value of each of {', '.join(metrics)}")
    if as_json:
        print_json(
            [
                {
                    "configuration": dict(point.configuration.factors),
                    "metrics": dict(zip(metrics, point.values, strict=True)),
                    "trials": len(point.configuration.records),
                    "optimal": point.optimal if len(each.points) > 1 else None,
                }
                for each in fronts
                for point in each.points
            ]
        )
        return 1 if cases.faults else 0
    columns = case_columns([point.configuration.factors for point, _ in points], wide=wide)
    rows = [
        [
            *own,
            *(si(value, metric.unit) for value, metric in zip(point.values, each.metrics, strict=True)),
            "only one" if len(each.points) == 1 else "optimal" if point.optimal else "",
        ]
        for (point, each), own in zip(points, columns.cells, strict=True)
    ]
    print_table([*columns.headings, *metrics, ""], rows, drop=metrics[:0:-1], wide=wide)
    unlike = executions(point.configuration.records[0].case for point, _ in points)
    for note in filter(None, [unlike, *skewed(cases.records)]):
        print_text(f"note: {note}", "  ")
    if alone := sum(len(each.points) == 1 for each in fronts):
        print_text(
            f"note: {part(alone, len(points), 'configuration', 'has', 'have')} no other of the same work "
            "(problem, mode, precision and parameters), so nothing is compared with it",
            "  ",
        )
    print_mixed(cases)
    if left_out := sum(each.left_out for each in fronts):
        print_text(
            f"left out: {count(left_out, 'configuration')} without a value of the metric (such as memory in a duet)",
            "  ",
        )
    return 1 if cases.faults else 0
