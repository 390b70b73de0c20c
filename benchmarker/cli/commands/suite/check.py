"""`benchmarker suite check`."""

from __future__ import annotations

from pathlib import Path

import click

from benchmarker.cli.display.output import Output, output_options
from benchmarker.cli.display.progress import working
from benchmarker.cli.display.submissions import submissions_output
from benchmarker.cli.options import completion
from benchmarker.procurement import submission


@click.command("check")
@click.argument("results", metavar="RESULT|BUNDLE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--suite",
    shell_complete=completion.suites_and_plan_files,
    metavar="NAME|FILE",
    help="The suite or plan file that should have been run. [default: the suite named in the run]",
)
@output_options()
def command(results: tuple[Path, ...], suite: str | None) -> Output:
    """Check runs of a suite as handed in: list everything that is missing, failed, disturbed, changed or invalid.

    RESULT is the folder of a run, or a folder of runs; BUNDLE is a packed run, which is not unpacked. Checked are the
    suite, cases, trials, energy and profiles if the suite requests them, disturbances, the consistency of records,
    machine and software, and checksums. The exit status is 0 if nothing is found, otherwise 1.
    """
    with working("checking"):
        checked = [each for result in results for each in submission.check(result, suite)]
    return Output(submissions_output(checked), checked, 1 if any(each.findings for each in checked) else 0)
