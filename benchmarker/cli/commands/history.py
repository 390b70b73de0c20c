"""`benchmarker history`."""

from __future__ import annotations

from pathlib import Path

import click

from benchmarker.api.errors import UserError
from benchmarker.cli.display.output import ALL, Output, output_options
from benchmarker.cli.options.results import read_cases, results_argument, where_option
from benchmarker.cli.options.types import File
from benchmarker.comparing.history import DATE, HOST, NODE, history
from benchmarker.comparing.other_tools import series_of, tool_of
from benchmarker.display.history import history_output
from benchmarker.files import atomic
from benchmarker.formatting import clean, si
from benchmarker.hooks.metrics import load_metrics, refuse_unknown
from benchmarker.hooks.registry import needing
from benchmarker.library.reporting import page_path
from benchmarker.records import store
from benchmarker.records.step_times import STEP_TIME


@click.command("history")
@results_argument
@click.option("--problem", metavar="NAME[,NAME...]", help="Only cases of these problems.")
@where_option
@click.option(
    "--by",
    metavar="PROPERTY",
    default=DATE,
    show_default=True,
    help="What names and orders the points: date, commit, a library such as torch, driver, kernel, ...; or node, "
    "for a series of each.",
)
@click.option(
    "--metric",
    metavar="NAME",
    default=STEP_TIME,
    show_default=True,
    help="Metric of the series, any that `show` prints.",
)
@click.option("-o", "--output", type=File(), help="Also write a page with a figure for each case: .html.")
@store.uncollected()
@output_options(top=ALL)
def command(
    results: tuple[Path, ...],
    problem: str | None,
    where: tuple[str, ...],
    by: str,
    metric: str,
    output: Path | None,
    wide: bool,
) -> Output:
    """Find since when a case is faster or slower: change points along time, commits or versions.

    A point is the median over the trials of a case in one run. A change of level is reported with its size, the points
    between which it lies, and what else of the environment changed there, such as the driver or the node. It is a
    suspicion until `ab` has measured both sides in turns; the command for that is printed if both can be checked out.

    A series is looked at again with each new run. Fewer than 5% of series of 40 points without a change have any
    alarm at any time, also if neighbouring points are alike (autocorrelation up to 0.6).

      benchmarker history results/ --problem=gemm --by=commit -o history.html

    RESULT is a record, the folder of a run, a folder of runs, or an archive; or all are JSON files of pytest-benchmark,
    hyperfine or Google Benchmark, one a run. The exit status is 1 if a file cannot be read.
    """
    if output:
        page_path(output)
        with needing("report", "a page"):
            from benchmarker.page.render import render
    if any(map(tool_of, results)):
        given = {"--problem": problem, "--where": where, "--metric": metric != STEP_TIME}
        if named := ", ".join(name for name, value in given.items() if value):
            raise UserError(f"files of other tools have names and times alone; leave {named} out")
        several, faults = series_of(results, by), False
    else:
        cases = read_cases(results, True, [*([f"problem={problem}"] if problem else []), *where])
        derive = load_metrics(results)
        refuse_unknown([metric], cases.records, derive, option="--metric")
        several, faults = history(cases, by, metric, derive), bool(cases.faults)
    if output:
        from benchmarker.page.history import page

        content = render(page(several, DATE if by in (HOST, NODE) else by))
        atomic.save(output, content)
        click.echo(f"page: {clean(str(output))} ({si(len(content), 'B')})", err=True)
    return Output(history_output(several, by, wide=wide), several, 1 if faults else 0)
