"""`benchmarker history`."""

import signal
from pathlib import Path
from typing import Any

import click

from benchmarker.api.errors import TerminatedError, UserError
from benchmarker.cli.display.output import ALL, Output, output_options
from benchmarker.cli.display.progress import Progress, progress_options
from benchmarker.cli.options.results import results_argument, tell_unread, where_option
from benchmarker.cli.options.types import File, Folder, Integer
from benchmarker.comparing.history import DATE
from benchmarker.library.history import MOST, History, history
from benchmarker.library.reporting import output_path, write_page
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
    help="What names and orders the points: date, commit, a library such as torch, driver, kernel, ...; or node, "
    "for a series of each.",
)
@click.option("--metric", metavar="NAME", help=f"Metric of the series, any that `show` prints. [default: {STEP_TIME}]")
@click.option("--confirm", is_flag=True, help="Measure both sides of the newest changes now, in turns, as `ab` does.")
@click.option(
    "--most",
    type=Integer(min=1),
    metavar="N",
    help=f"Maximum number of changes that --confirm measures. [default: {MOST}]",
)
@click.option(
    "--results",
    "folder",
    type=Folder(),
    metavar="FOLDER",
    help="Folder for the records and checkouts of --confirm. [default: results]",
)
@click.option(
    "-o",
    "--output",
    type=File(),
    help="Also write a page with a figure for each case, .html; or the figure of the case, or of all cases, as .svg, "
    ".pdf or .png, and its data beside it as .csv.",
)
@store.uncollected()
@progress_options
@output_options(top=ALL)
def command(
    results: tuple[Path, ...],
    confirm: bool,
    most: int | None,
    folder: Path | None,
    output: Path | None,
    wide: bool,
    **options: Any,
) -> Output:
    """Find since when a case is faster or slower: change points along time, commits or versions.

    A point is the median over the trials of a case in one run. A change of level is reported with its size, the points
    between which it lies, and what else of the environment changed there, such as the driver or the node. It is a
    suspicion until `ab` has measured both sides in turns; the command for that is printed if both can be checked out,
    and --confirm does it. An interrupt keeps what was found before.

    A series is looked at again with each new run. Fewer than 5% of series of 40 points without a change have any
    alarm at any time, also if neighbouring points are alike (autocorrelation up to 0.6).

      benchmarker history results/ --problem=gemm --by=commit -o history.html

    RESULT is a record, the folder of a run, a folder of runs, or an archive; or all are JSON files of pytest-benchmark,
    hyperfine, Google Benchmark or nvbench, one a run, or results of asv. The exit status is 1 if a file cannot be read.
    """
    if not confirm and (named := [f"--{name}" for name, value in (("most", most), ("results", folder)) if value]):
        raise UserError(f"only --confirm measures; leave {' and '.join(named)} out")
    if output:
        output_path(output)
    found = history(*results, unread=tell_unread, **options)
    status = 1 if found.faults else 0
    if confirm:
        found, status = _confirmed(found, most or MOST, folder or Path("results"), status)
    if output:
        click.echo(write_page(found.page, output), err=True)
    return Output(found.parts(wide=wide), found.data, status)


def _confirmed(found: History, most: int, results: Path, status: int) -> tuple[History, int]:
    """Return the history with what an `ab` of each change found, and the exit status: 130 or 143 if interrupted."""
    with Progress() as progress:
        try:
            return found.confirm(most, results, progress), status
        except KeyboardInterrupt as interrupt:
            progress.say("interrupted; what was found before is printed")
            ended = signal.SIGTERM if isinstance(interrupt, TerminatedError) else signal.SIGINT
            return getattr(interrupt, "results", found), 128 + ended
