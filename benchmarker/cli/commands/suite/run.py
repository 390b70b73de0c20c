"""`benchmarker suite run`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from benchmarker.api.errors import UserError
from benchmarker.cli.display.output import Output, output_options
from benchmarker.cli.display.progress import progress_options
from benchmarker.cli.execution import execute_plan, made, spread
from benchmarker.cli.options import completion
from benchmarker.cli.options.case import dry_run_option, spread_options, store_options
from benchmarker.cli.options.types import Integer
from benchmarker.planning import suites

if TYPE_CHECKING:
    from pathlib import Path


@click.command("run")
@click.argument("name", shell_complete=completion.suites)
@click.option(
    "--framework",
    metavar="NAME[,NAME...]",
    shell_complete=completion.several("framework"),
    help="Frameworks to measure, instead of those of the suite.",
)
@click.option(
    "--device",
    metavar="PLATFORM",
    help="A platform that the frameworks report, or gpu. [default: the framework's choice]",
)
@click.option(
    "--threads",
    type=Integer(min=1),
    metavar="N",
    help="CPU threads to compute with. [default: the frameworks' own]",
)
@store_options
@spread_options
@dry_run_option
@progress_options
@output_options()
def command(
    name: str,
    framework: str | None,
    device: str | None,
    threads: int | None,
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
    description = suites.find(name).plan
    if framework is not None:
        if not all(frameworks := [each.strip() for each in framework.split(",")]):
            raise UserError(f"--framework={framework}: a name is missing")
        description = replace(description, axes={**description.axes, "framework": frameworks})
    given = {key: value for key, value in (("device", device), ("threads", threads)) if value is not None}
    description = replace(description, base={**description.base, **given})
    return execute_plan(spread(made(description), runs, pause_s), results, resume, dry_run)
