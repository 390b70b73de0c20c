"""`benchmarker report`."""

from pathlib import Path
from typing import Any

import click

from benchmarker.api.errors import UserError
from benchmarker.cli.display.output import Output, View, output_options
from benchmarker.cli.display.progress import working
from benchmarker.cli.options.judging import judging_options, status_of, verdicts_of
from benchmarker.cli.options.results import results_argument, tell_unread
from benchmarker.cli.options.types import File
from benchmarker.comparing.results import Comparison, GeometricMean
from benchmarker.formatting import clean, si
from benchmarker.library.reporting import output_path, report
from benchmarker.page.plots import FORMATS
from benchmarker.records import store


@click.command("report")
@results_argument
@click.option(
    "-o", "--output", type=File(), help="Name of the HTML file, or of that of --figure. [default: report.html]"
)
@click.option(
    "--figure", metavar="NAME", help="Write this figure instead, for a paper: .svg, .pdf or .png, and its data as .csv."
)
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
    figure: str | None,
    fail_on: str | None,
    strict: bool,
    view: View,
    **judging: Any,
) -> Output:
    """Write a self-contained HTML report: verdicts, figures and the data behind them. It needs no network.

    RESULT is a record, the folder of a run, a folder of runs, also of `serve-load`, or an archive; or all are profiler
    traces or event tables, for a report on where their time goes. With several records, the baseline is the first or
    the one that --baseline names, and each of the others is compared with it. With --by, or with a single RESULT,
    configurations that differ in only one axis are compared. If several axes could be meant, frameworks are compared.
    If nothing can be compared, the report states why. With --json, the content of the page (verdicts, tables, the data
    of its figures) is printed instead, and no file is written.

    The exit status is 1 if a file cannot be read, or if a verdict is one of --fail-on. With --strict it is 3 if
    a verdict is provisional. The report is written even then, and states the problem.
    """
    path = _path(output, figure, view)
    unwanted = verdicts_of(fail_on)
    with working("writing the report"):
        made = report(*results, unread=tell_unread, **judging)
        if fail_on and not made.records:
            raise UserError("traces and loads give no verdicts: leave --fail-on out, or name records")
        if path and figure:
            click.echo(made.save_figure(path, figure), err=True)
        elif path:
            made.save(path)
            click.echo(f"report: {clean(str(path))} ({si(len(made.html), 'B')})", err=True)
    judged: list[Comparison | GeometricMean] = []
    if made.family:
        judged = [*made.family.comparisons, *made.family.geometric_means]
    return Output(data=lambda: made.data, status=1 if made.faults else status_of(judged, unwanted, strict))


def _path(output: Path | None, figure: str | None, view: View) -> Path | None:
    """Return the file that gets the page or a figure, None if the content is printed as JSON; raises `UserError`."""
    if view.form == "json":
        if given := " and ".join(name for name, value in (("--output", output), ("--figure", figure)) if value):
            raise UserError(f"--json prints the content of the report; leave {given} out")
        return None
    path = output or Path(f"{figure}.svg" if figure else "report.html")
    if (path.suffix.lower() in FORMATS) != bool(figure):
        raise UserError(
            f"--output={path}: a page is .html; a figure, which --figure=NAME chooses, is {', '.join(FORMATS)}"
        )
    return output_path(path)
