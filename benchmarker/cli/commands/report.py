"""`benchmarker report`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchmarker.api.errors import UserError
from benchmarker.cli.display.output import Output, View, output_options
from benchmarker.cli.display.profiles import from_result
from benchmarker.cli.display.progress import working
from benchmarker.cli.options.judging import judging_options, status_of, verdicts_of
from benchmarker.cli.options.results import results_argument, tell_unread, traces_of
from benchmarker.cli.options.types import File
from benchmarker.comparing.results import Comparison, GeometricMean
from benchmarker.files import atomic
from benchmarker.formatting import clean, si
from benchmarker.hooks.metrics import load_metrics
from benchmarker.hooks.registry import needing
from benchmarker.library.judging import known_metric, rules_of
from benchmarker.library.results import refuse_empty
from benchmarker.procurement.score import THROUGHPUT
from benchmarker.records import store
from benchmarker.records.load import under

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarker.files.atomic import Fault
    from benchmarker.records.load import Load
    from benchmarker.records.record import Record
    from benchmarker.report.page_model import Page

ENDINGS = (".html", ".htm")


@click.command("report")
@results_argument
@click.option("-o", "--output", type=File(), help="Name of the HTML file. [default: report.html]")
@click.option(
    "--by", metavar="AXIS[,AXIS...]", help="Compare configurations that differ only in this: framework, m, host, ..."
)
@click.option(
    "--baseline", metavar="VALUE", help="Baseline: a value of --by, or one of the RESULTs. [default: the first]"
)
@click.option("--cost", type=File(), help="TOML file with prices, as for `suite score`.")
@click.option("--weights", type=File(), help="Weights of cases, as for `suite score`.")
@click.option("--reference", type=File(), help="TOML file with bounds, as for `suite accept`.")
@click.option("--title", metavar="TEXT", help="Heading of the report. [default: what was measured]")
@judging_options
@store.uncollected()
@output_options(tables=False)
def command(
    results: tuple[Path, ...],
    output: Path | None,
    by: str | None,
    baseline: str | None,
    cost: Path | None,
    weights: Path | None,
    reference: Path | None,
    title: str | None,
    fail_on: str | None,
    strict: bool,
    view: View,
    **judging: Any,
) -> Output:
    """Write a self-contained HTML report: verdicts, figures and the data behind them. It needs no network.

    RESULT is a record, the folder of a run, or a folder of runs, also of `serve-load`; or all are profiler traces or
    event tables, for a report on where their time goes. With several records, the baseline is the first or the one that
    --baseline names, and each of the others is compared with it. With --by, or with a single RESULT, configurations
    that differ in only one axis are compared. If several axes could be meant, frameworks are compared. If nothing can
    be compared, the report states why. With --json, the content of the page (verdicts, tables, the data of its figures)
    is printed instead, and no file is written.

    The exit status is 1 if a file cannot be read, or if a verdict is one of --fail-on. With --strict it is 3 if
    a verdict is provisional. The report is written even then, and states the problem.
    """
    from benchmarker.report.assemble import page
    from benchmarker.report.gather import Procurement, gather
    from benchmarker.report.loads import page as page_of_loads

    path = _path(output, view)
    if traces := traces_of(results):
        if by or baseline or fail_on:
            raise UserError("traces give no verdicts: leave --by, --baseline and --fail-on out, or name records")
        from benchmarker.report.traced import page as page_of_traces

        return _published(path, page_of_traces([(trace, from_result(trace)) for trace in traces], title), 0)
    every, loads = _read(results)
    faults = [fault for _, _, of in every for fault in of]
    tell_unread(faults)
    refuse_empty([str(result) for result, records, _ in every if not (records or loads[result])])
    read = [result for result in every if result[1]]
    unread_loads = [fault for _, records, of in every if not records for fault in of]
    all_loads = [load for of in loads.values() for load in of]
    if not read:
        if by or baseline or fail_on or cost or weights or reference:
            raise UserError(
                "loads are not judged: leave --by, --baseline, --fail-on, --cost, --weights and --reference out"
            )
        return _published(path, page_of_loads(all_loads, faults, title), 1 if faults else 0)
    scored = len(read) > 1 or cost or weights
    if scored and not judging["metric"] and not judging["statistic"]:
        judging["metric"] = THROUGHPUT
    rules, unwanted = rules_of(**judging), verdicts_of(fail_on)
    known_metric(rules, load_metrics()(read[0][1][0]))
    with working("writing the report"):
        given = Procurement(cost, weights, reference)
        study = gather(
            read, rules, by=by, baseline=baseline, procurement=given, loads=all_loads, unread=unread_loads, title=title
        )
        content, unread = page(study)
        output_of_page = _published(path, content)
    told = {str(fault) for fault in faults}
    for text in [*(str(fault) for fault in study.faults if str(fault) not in told), *unread]:
        click.echo(f"benchmarker: cannot read {clean(text)}", err=True)
    family = study.family
    judged: list[Comparison | GeometricMean] = [*family.comparisons, *family.geometric_means] if family else []
    status = 1 if study.faults or unread else status_of(judged, unwanted, strict)
    return replace(output_of_page, status=status)


def _read(results: Sequence[Path]) -> tuple[list[tuple[Path, list[Record], list[Fault]]], dict[Path, list[Load]]]:
    """Return the records of each result with the faults, and its loads; a result with loads needs no record."""
    read, loads = [], {}
    for result in results:
        records, faults = store.read([result])
        loads[result], unread = under(result)
        if loads[result] and not records:
            faults = [fault for fault in faults if fault.path != result]
        read.append((result, records, [*faults, *unread]))
    return read, loads


def _path(output: Path | None, view: View) -> Path | None:
    """Return the file that gets the page, None if its content is printed as JSON; raises `UserError`."""
    if view.form == "json":
        if output:
            raise UserError("--json prints the content of the report; leave --output out")
        return None
    path = output or Path("report.html")
    if path.suffix.lower() not in ENDINGS:
        raise UserError(f"--output={path}: the name of a report must end in {' or '.join(ENDINGS)}")
    with needing("report", "a page"):
        import benchmarker.report.render  # noqa: F401 - refused before anything is read
    return path


def _published(path: Path | None, page: Page, status: int = 0) -> Output:
    """Write a page to a file, if there is one; return its content."""
    from benchmarker.report.page_model import plain

    if path:
        from benchmarker.report.render import render

        encoded = render(page)
        atomic.save(path, encoded)
        click.echo(f"report: {clean(str(path))} ({si(len(encoded), 'B')})", err=True)
    return Output(data=partial(plain, page), status=status)
