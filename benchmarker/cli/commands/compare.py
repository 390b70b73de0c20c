"""`benchmarker compare`."""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, get_args

import click

from benchmarker.api.errors import UserError
from benchmarker.cli.display.ci import GITHUB, github_output, write_junit
from benchmarker.cli.display.output import ALL, Output, View, most_notes, output_options, verbose_option
from benchmarker.cli.display.profiles import profile_output
from benchmarker.cli.options.judging import judging_options, status_of, verdicts_of
from benchmarker.cli.options.results import pool_option, results_argument, tell_unread, where_option
from benchmarker.cli.options.types import Choice, File, figure_option
from benchmarker.comparing.results import Level
from benchmarker.display.comparisons import classical_output, family_output, speedups_output
from benchmarker.display.result import Part
from benchmarker.library.judging import Unit, compare
from benchmarker.library.results import traces_among
from benchmarker.records import store


@click.command("compare")
@results_argument
@click.option(
    "--by", metavar="AXIS[,AXIS...]", help="Compare configurations that differ only in this: framework, m, host, ..."
)
@click.option(
    "--baseline", metavar="VALUE", help="Value of --by that is the baseline. [default: the first in the plan]"
)
@click.option(
    "--level",
    type=Choice(get_args(Level)),
    default="trial",
    help="Compare whole trials, or each scope or kernel of profiled trials (δ is then 5% by default).",
)
@where_option
@pool_option
@judging_options
@click.option(
    "--unit",
    type=Choice(get_args(Unit)),
    default="trial",
    help="What counts as one sample; blocks of one process are not independent.",
)
@click.option(
    "--classical",
    "classically",
    is_flag=True,
    help="Also print rank-sum tests, means and standard deviations of all blocks.",
)
@click.option(
    "--speedup", is_flag=True, help="Print a table of speed-ups instead: a row per case, a column per contender."
)
@figure_option("Write the ratios")
@click.option("--junit", "xml", type=File(), help="Also write JUnit XML.")
@verbose_option
@store.uncollected()
@output_options(top=ALL, more=(GITHUB,))
def command(
    results: tuple[Path, ...],
    by: str | None,
    baseline: str | None,
    level: Level,
    where: tuple[str, ...],
    pool: bool,
    fail_on: str | None,
    strict: bool,
    unit: Unit,
    classically: bool,
    speedup: bool,
    output: Path | None,
    xml: Path | None,
    verbose: bool,
    view: View,
    **judging: Any,
) -> Output:
    """Compare stored records: the contender is faster, slower, the same within δ, or undecided.

    RESULT is a record, the folder of a run, a folder of runs, or an archive. With several, the first is the baseline
    and each of the others is compared with it, case by case. With --by, or with a single RESULT, configurations that
    differ in only one axis are compared: within each RESULT, unless each has only one value of the axis (or with
    --pool). Trials of one interleaved run are paired by round; other trials are not paired, and the output says so.
    With --level, each scope or kernel that takes at least 1% of the busy time is compared. Two profiler traces or event
    tables are shown side by side without a verdict, by kernel, or by scope with --level=scope.

    --format=github appends the tables to the summary of a job of GitHub Actions, and prints an error for each verdict
    of --fail-on and a warning for each other one that is undecided or provisional. In JUnit XML these have failed and
    were skipped.

    The exit status is 1 if a file cannot be read, or if a verdict is one of --fail-on. With --strict it is 3
    if a verdict is provisional.
    """
    if traces := traces_among(results):
        options = {"--by": by, "--baseline": baseline, "--fail-on": fail_on, "--output": output, "--speedup": speedup}
        options |= {"--where": bool(where), "--classical": classically, "--unit=block": unit == "block"}
        options |= {"--junit": xml, f"--format={GITHUB}": view.form == GITHUB}
        return _compare_traces(traces, level, [name for name, value in options.items() if value], view)
    if level != "trial" and output:
        raise UserError(f"--level={level} compares only profiled times; leave --output out")
    unwanted = verdicts_of(fail_on)
    verdicts = compare(
        *results,
        by=by,
        baseline=baseline,
        level=level,
        where=where,
        pool=pool,
        unit=unit,
        classically=classically,
        unread=tell_unread,
        **judging,
    )
    if output:
        if all(each.ratio is None for each in verdicts.family.comparisons):
            raise UserError("no comparison has a ratio to draw")
        click.echo(verdicts.save_figure(output, "ratios"), err=True)
    family, tables = verdicts.family, verdicts.classical
    status = 1 if verdicts.faults else status_of([*family.comparisons, *family.geometric_means], unwanted, strict)
    most = most_notes(verbose=verbose)
    if speedup:
        parts = speedups_output(family, wide=view.wide, most_notes=most)
    else:
        parts = family_output(family, wide=view.wide, verbose=verbose, tabular=not view.is_text, most_notes=most)
    all_parts: Iterator[Part] = chain(parts, classical_output(tables, tests=classically) if tables else ())
    if xml:
        write_junit(xml, family, verdicts.matches, verdicts.faults, unwanted)
    if view.form == GITHUB:
        all_parts = github_output(family, all_parts, verdicts.faults, unwanted)
    return Output(all_parts, verdicts.data, status)


def _compare_traces(traces: list[Path], level: Level, given: list[str], view: View) -> Output:
    """Return what differs between two traces."""
    if len(traces) != 2:
        raise UserError("compare shows what differs between two traces; give two, or records")
    if given:
        raise UserError(f"one trace of each side gives no verdict: leave {', '.join(given)} out, or compare records")
    return profile_output("scopes" if level == "scope" else "kernels", traces, view)
