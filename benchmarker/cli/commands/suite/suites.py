"""`benchmarker suite list`, `suite run` and `suite check`: suites, and whether all of one was run as it should be."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from benchmarker.cli.display.output import Output, output_options
from benchmarker.cli.display.progress import progress_options, working
from benchmarker.cli.execution import execute_plan, made, spread
from benchmarker.cli.options.case import dry_run_option, spread_options, store_options, suite_options
from benchmarker.cli.options.types import complete_plan_file, complete_suite
from benchmarker.display.result import Part, Text
from benchmarker.formatting import clean, count
from benchmarker.planning import factors, suites
from benchmarker.procurement import submission
from benchmarker.procurement.submission import Submission
from benchmarker.tables.table import Table


@click.command("list")
@output_options()
def list_command() -> Output:
    """List the suites with version, number of cases and trials per case, and run time.

    No framework is started. Cases that a framework does not support here are left out when the suite runs.
    """
    rows: list[dict[str, Any]] = [
        {
            "name": suite.name,
            "version": suite.plan.version,
            "cases": len(factors.expand(suite.plan)),
            "trials": suite.plan.trials,
            "time": suite.time,
            "summary": suite.summary,
        }
        for suite in map(suites.find, suites.names())
    ]
    parts = [
        part
        for row in rows
        for part in (
            f"{row['name']}, version {row['version']}",
            Text(f"  {row['summary']}", "  "),
            Text(f"  {count(row['cases'], 'case')}, {count(row['trials'], 'trial')} of each; {row['time']}", "    "),
        )
    ]
    return Output(parts, rows, csv=Table.of(rows[0], [tuple(row.values()) for row in rows]))


@click.command("run")
@click.argument("name", shell_complete=complete_suite)
@suite_options
@store_options
@spread_options
@dry_run_option
@progress_options
@output_options()
def run_command(
    name: str,
    frameworks: list[str],
    settings: dict[str, str | int],
    results: Path,
    resume: bool,
    runs: int,
    pause_s: float | None,
    dry_run: bool,
) -> Output:
    """Run the suite NAME.

    Records are stored in --results; with --resume, an unfinished run continues. Cases that a framework or a device
    does not support are left out and reported. With --runs, the rounds are spread over several runs in one folder, each
    of which counts as a run in scores and comparisons. The exit status is 1 if a trial failed.
    """
    suite = suites.find(name).plan
    axes = {**suite.axes, "framework": frameworks} if frameworks else suite.axes
    description = replace(suite, axes=axes, base={**suite.base, **settings})
    return execute_plan(spread(made(description), runs, pause_s), results, resume, dry_run)


@click.command("check")
@click.argument("results", metavar="RESULT|BUNDLE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--suite",
    shell_complete=lambda *given: complete_suite(*given) or complete_plan_file(*given),
    metavar="NAME|FILE",
    help="The suite or plan file that should have been run. [default: the suite named in the run]",
)
@output_options()
def check_command(results: tuple[Path, ...], suite: str | None) -> Output:
    """Check runs of a suite as handed in: list everything that is missing, failed, disturbed, changed or invalid.

    RESULT is the folder of a run, or a folder of runs; BUNDLE is a packed run, which is not unpacked. Checked are the
    suite, cases, trials, energy and profiles if the suite requests them, disturbances, the consistency of records,
    machine and software, and checksums. The exit status is 0 if nothing is found, otherwise 1.
    """
    with working("checking"):
        checked = [submitted for result in results for submitted in submission.check(result, suite)]
    return Output(submissions_output(checked), checked, 1 if any(submitted.findings for submitted in checked) else 0)


def submissions_output(checked: Sequence[Submission]) -> Iterator[Part]:
    """Yield what was found in each run, then whether it is as its suite requires."""
    for each in checked:
        if each.findings:
            yield Table.facts([[finding.kind, finding.of, finding.what] for finding in each.findings])
        verdict = count(len(each.findings), "finding") if each.findings else "complete, nothing is changed or disturbed"
        yield clean(f"{each.path}: suite {each.suite or 'unknown'}: {verdict}")
