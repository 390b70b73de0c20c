"""`benchmarker pareto`."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from benchmarker.api.errors import UserError
from benchmarker.cli.display.output import ALL, Output, output_options
from benchmarker.cli.options.results import mixed_output, pool_option, read_cases, results_argument
from benchmarker.cli.options.types import figure_option
from benchmarker.comparing.diagnosis import emulated, executions, skewed
from benchmarker.comparing.pareto import ERRORS, Candidate, Front, by_work, front
from benchmarker.display.cases import case_columns
from benchmarker.display.result import Part, Text
from benchmarker.formatting import count, names_in, part
from benchmarker.hooks.cases import Cases, Configuration
from benchmarker.hooks.metrics import load_metrics, refuse_unknown
from benchmarker.page import plots
from benchmarker.page.page_model import Figure
from benchmarker.records import store
from benchmarker.tables.results import headings
from benchmarker.tables.table import Column, Table, number, spread

INTERVAL = "95% interval"


@click.command("pareto")
@results_argument
@click.option(
    "--metric",
    "names",
    metavar="NAME[,NAME...]",
    default="samples_per_s,host_peak_rss_bytes",
    help="Metrics that `show` prints; each is judged in its better direction.",
)
@figure_option("Write two metrics")
@pool_option
@store.uncollected()
@output_options(top=ALL)
def command(results: tuple[Path, ...], names: str, output: Path | None, pool: bool, wide: bool) -> Output:
    """Mark the Pareto-optimal configurations.

    A configuration is Pareto-optimal if no other one of the same work (problem, mode, precision and parameters) is at
    least as good in every metric and better in one. If one of the metrics is an error (error, componentwise_error,
    effective_bits), the precisions are compared with each other.

    RESULT is a record, the folder of a run, a folder of runs, or an archive; of several folders, each is a side. The
    medians over trials are compared; use `compare` to test whether two configurations really differ. The exit status is
    1 if a file cannot be read.
    """
    metrics = names_in(names)
    if not metrics:
        raise UserError("--metric names no metric")
    cases, derive = read_cases(results, pool), load_metrics(results)
    refuse_unknown(metrics, cases.records, derive)
    fronts = [front(of_work, metrics, derive) for of_work in by_work(cases, metrics)]
    points = [(point, group) for group in fronts for point in sorted(group.points, key=lambda point: point.values)]
    if not points:
        raise UserError(f"no configuration has a value of each of {', '.join(metrics)}")
    data = [
        {
            "configuration": dict(point.configuration.factors),
            "metrics": dict(zip(metrics, point.values, strict=True)),
            "intervals": dict(zip(metrics, point.intervals, strict=True)),
            "trials": len(point.configuration.records),
            "optimal": point.optimal if len(group.points) > 1 else None,
        }
        for group in fronts
        for point in group.points
    ]
    parts = [*_parts(points, cases, metrics, sum(group.left_out for group in fronts), wide=wide)]
    if output:
        table = next(each for each in parts if isinstance(each, Table))
        click.echo(plots.save(_figure(points, fronts, metrics, table), output), err=True)
    return Output(parts, data, 1 if cases.faults else 0)


def _figure(
    points: Sequence[tuple[Candidate[Configuration], Front[Configuration]]],
    fronts: Sequence[Front[Configuration]],
    metrics: Sequence[str],
    table: Table,
) -> Figure:
    """Return the figure of two metrics, with a colour for each work; raises `UserError` if there are more or fewer."""
    from benchmarker.page.trade_offs import Placed, front_figure

    if len(metrics) != 2:
        raise UserError(f"a figure has two axes; name two metrics, not {len(metrics)}: {', '.join(metrics)}")
    words = case_columns([point.configuration.factors for point, _ in points], wide=False).words
    placed = [
        Placed(word, word, fronts.index(of_work), point) for word, (point, of_work) in zip(words, points, strict=True)
    ]
    placed.sort(key=lambda each: not each.of.optimal)
    return front_figure(
        placed, points[0][1].metrics, (metrics[0], metrics[1]), table, against_error=metrics[1] == "error"
    )


def _verdict(point: Candidate[Configuration], of_work: Front[Configuration]) -> str:
    return "only one" if len(of_work.points) == 1 else "optimal" if point.optimal else ""


def _parts(
    points: Sequence[tuple[Candidate[Configuration], Front[Configuration]]],
    cases: Cases,
    metrics: Sequence[str],
    left_out: int,
    *,
    wide: bool,
) -> Iterator[Part]:
    columns = case_columns([point.configuration.factors for point, _ in points], wide=wide)
    yield from columns.shared
    units = [metric.unit for metric in points[0][1].metrics]
    words = headings(metrics)
    last_first = [*words.values()][::-1]
    filled = [
        *columns.columns,
        *(
            each
            for at, (name, unit) in enumerate(zip(metrics, units, strict=True))
            for each in (
                (number(name, unit, words[name]), [point.values[at] for point, _ in points]),
                *spread(f"{words[name]} {INTERVAL}", name, [point.intervals[at] for point, _ in points], unit),
            )
        ),
        (Column("verdict", levels=("",)), [_verdict(*pair) for pair in points]),
    ]
    yield Table.of_columns(filled, drop=[f"{word} {INTERVAL}" for word in last_first] + last_first[:-1], ordered=True)
    unlike = executions(point.configuration.records[0].case for point, _ in points)
    for note in filter(None, [unlike, *skewed(cases.records), *emulated(cases.records)]):
        yield Text(f"note: {note}", "  ")
    same = "problem, mode" if ERRORS.intersection(metrics) else "problem, mode, precision"
    if alone := sum(len(group.points) == 1 for _, group in points):
        yield Text(
            f"note: {part(alone, len(points), 'configuration', 'has', 'have')} no other of the same work "
            f"({same} and parameters), so nothing is compared with it",
            "  ",
        )
    yield from mixed_output(cases)
    if left_out:
        yield Text(
            f"left out: {count(left_out, 'configuration')} without a value of the metric (such as memory in a duet)",
            "  ",
        )
