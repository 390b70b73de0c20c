"""`benchmarker show`."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from benchmarker.api.errors import UserError
from benchmarker.cli.display.output import ALL, Output, View, output_options
from benchmarker.cli.options.results import mixed_output, pool_option, results_argument, tell_unread, where_option
from benchmarker.cli.options.types import File
from benchmarker.display.badge import badge
from benchmarker.display.drawings import marks_of
from benchmarker.display.records import as_plain, cases_output, record_output, trials_output
from benchmarker.display.result import Part
from benchmarker.files import atomic
from benchmarker.formatting import clean, names_in
from benchmarker.hooks.cases import Cases
from benchmarker.hooks.metrics import Derive, load_metrics
from benchmarker.library.results import conditions
from benchmarker.records import sides, store
from benchmarker.records.load import is_load
from benchmarker.records.sides import Side
from benchmarker.records.step_times import STEP_TIME


@click.command("show")
@results_argument
@where_option
@pool_option
@click.option("--trials", is_flag=True, help="Show a line for each trial instead of one for each case.")
@click.option("--metric", metavar="NAME[,NAME...]", help="Metrics to show. [default: the main ones that have a value]")
@click.option("--badge", "svg", type=File(dir_okay=False), help="Write the figure of one case as a badge, an SVG file.")
@store.uncollected()
@output_options(top=ALL)
def command(
    results: tuple[Path, ...],
    where: tuple[str, ...],
    pool: bool,
    trials: bool,
    metric: str | None,
    svg: Path | None,
    view: View,
) -> Output:
    """Show a single record in full, a line for each case of several records, or the load that `serve-load` stored.

    The line has the medians over the successful trials, how far the trials spread (the 95% interval of the median if
    every case has six trials or more, otherwise the range), and how many trials there are, failed or were disturbed.
    A single record has a histogram of its timed blocks; with --trials, a strip shows those of each trial.

    RESULT is a record, the folder of a run, a folder of runs, or an archive. Of several folders, each is a side, with
    lines of its own: `show results/*` has a line for each case of each run, `show results` one for each case of all
    runs together. The exit status is 1 if a file cannot be read; for a load, which is shown alone, it is that of
    `serve-load`.
    """
    if len(results) == 1 and is_load(results[0]):
        if trials or metric or where or svg:
            raise UserError(
                f"{results[0]} is a load, which has no trials and no metrics; "
                "leave --trials, --metric, --where and --badge out"
            )
        from benchmarker.cli.display.loads import output_of
        from benchmarker.records import load

        return output_of(load.read(results[0]), results[0])
    several, faults = sides.read(results, pool=pool, where=conditions(where))
    derive = load_metrics(results)
    chosen = names_in(metric or "")
    tell_unread(faults)
    if svg:
        if len(chosen) > 1:
            raise UserError(f"--metric={metric}: a badge shows one metric")
        atomic.save(svg, badge(Cases.of_sides(several), derive, chosen[0] if chosen else STEP_TIME).encode())
        click.echo(clean(f"badge: {svg}"), err=True)
    data = (as_plain(record, derive(record), side.name) for side in several for record in side.records)
    return Output(_parts(several, derive, chosen, trials, view), data, 1 if faults else 0)


def _parts(several: Sequence[Side], derive: Derive, chosen: Sequence[str], trials: bool, view: View) -> Iterator[Part]:
    records = [record for side in several for record in side.records]
    marks = marks_of(sys.stdout) if view.is_text else None
    if len(records) == 1 and not (trials or chosen):
        yield from record_output(records[0], derive(records[0]), marks)
    elif records:
        cases = Cases.of_sides(several)
        if trials:
            yield from trials_output(cases, derive, chosen, wide=view.wide, marks=marks)
        else:
            yield from cases_output(cases, derive, chosen, wide=view.wide)
            yield from mixed_output(cases)
