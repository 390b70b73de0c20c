"""`benchmarker plan show`."""

from __future__ import annotations

from pathlib import Path

import click

from benchmarker.cli.display.output import Output, output_options
from benchmarker.cli.display.progress import progress_options
from benchmarker.cli.execution import planned
from benchmarker.cli.options import completion
from benchmarker.cli.options.types import Folder
from benchmarker.cli.preview import preview


@click.command("show")
@click.argument("file", shell_complete=completion.plan_files, type=click.Path(path_type=Path))
@click.option(
    "--results",
    type=Folder(),
    default=Path("results"),
    show_default=True,
    help="Folder with earlier records, from which the time of a trial is estimated.",
)
@click.option(
    "--probe", is_flag=True, help="Run a short trial of each case without earlier records, to estimate its time."
)
@progress_options
@output_options()
def command(file: Path, results: Path, probe: bool) -> Output:
    """Show what a plan file would run: its cases, what is left out and why, and how long it would take.

    The exit status is 1 if a probe failed.
    """
    return preview(planned(file), results, probe)
