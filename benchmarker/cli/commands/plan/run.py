"""`benchmarker plan run`."""

from __future__ import annotations

from pathlib import Path

import click

from benchmarker.cli.display.output import json_option
from benchmarker.cli.display.progress import progress_options
from benchmarker.cli.execution import execute_plan, planned
from benchmarker.cli.options.case import dry_run_option, store_options


@click.command("run")
@click.argument("file", type=click.Path(path_type=Path))
@store_options
@dry_run_option
@progress_options
@json_option
def command(file: Path, results: Path, resume: bool, dry_run: bool, as_json: bool) -> int:
    """Run a plan file in rounds: each round is one trial of every case, in random order.

    Records are stored in a new folder below --results. If a trial fails, its record contains the reason and the run
    continues; the exit status is then 1.
    """
    return execute_plan(planned(file), results, resume, dry_run, as_json)
