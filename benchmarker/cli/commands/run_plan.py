"""`benchmarker run-plan`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchmarker.cli.display.output import json_option
from benchmarker.cli.execution import execute_plan, planned
from benchmarker.cli.options.case import store_options

if TYPE_CHECKING:
    pass


@click.command("run-plan", short_help="Run a plan file.")
@click.argument("file", type=click.Path(path_type=Path))
@store_options
@json_option
def command(file: Path, results: Path, resume: bool, as_json: bool) -> int:
    """Run a plan file: one trial of every case, in an order of its own, then the next of every case.

    Records go to a new folder below --results. A trial that fails is a record that says why, and the others go on;
    the exit status is 1 where one did.
    """
    return execute_plan(planned(file), results, resume, as_json)
