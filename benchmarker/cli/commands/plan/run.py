"""`benchmarker plan run`."""

from __future__ import annotations

from pathlib import Path

import click
from click.core import ParameterSource

from benchmarker.api.errors import UserError
from benchmarker.cli.display.output import Output, output_options
from benchmarker.cli.display.progress import progress_options
from benchmarker.cli.execution import continue_run, execute_plan, planned, spread
from benchmarker.cli.options import completion
from benchmarker.cli.options.case import dry_run_option, spread_options, store_options


@click.command("run")
@click.argument("file", shell_complete=completion.plan_files, type=click.Path(path_type=Path))
@store_options
@spread_options
@dry_run_option
@progress_options
@output_options()
def command(
    file: Path, results: Path, resume: bool, runs: int, pause_s: float | None, dry_run: bool, as_json: bool
) -> Output:
    """Run a plan FILE in rounds: each round is one trial of every case, in random order.

    Records are stored in a new folder below --results. If a trial fails, its record contains the reason and the run
    continues; the exit status is then 1. FILE may also be the folder of a run, which is then continued.
    """
    if file.is_dir():
        chosen = click.get_current_context().get_parameter_source("results") is not ParameterSource.DEFAULT
        if resume or dry_run or chosen or runs > 1 or pause_s is not None:
            raise UserError(
                f"{file} is a run, which continues as it began; leave --resume, --dry-run, --results, --runs and "
                "--pause out"
            )
        return continue_run(file)
    return execute_plan(spread(planned(file), runs, pause_s), results, resume, dry_run)
