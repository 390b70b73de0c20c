"""`benchmarker run-plan`."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchmarker import planfile, planning, store
from benchmarker.cli.asking import store_options
from benchmarker.cli.output import clean, json_option, print_json
from benchmarker.cli.progress import Progress, working
from benchmarker.cli.tables import as_plain, print_configurations
from benchmarker.errors import UserError
from benchmarker.execute import execute
from benchmarker.metrics import deriver

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarker.axes import Description
    from benchmarker.metrics import Derive
    from benchmarker.plan import Plan
    from benchmarker.record import Record


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


def planned(file: Path) -> Plan:
    """The plan of a file; raises `UserError` that names the file."""
    description = planfile.read(file)
    try:
        return made(description)
    except UserError as error:
        raise UserError(f"{file}: {error}") from error


def made(description: Description) -> Plan:
    """The plan of a description, while a terminal is told what is waited for."""
    with working("asking the frameworks what they do here"):
        return planning.make_plan(description)


def execute_plan(
    wanted: Plan,
    results: Path,
    resume: bool,
    as_json: bool,
    show: Callable[[Sequence[Record], Derive], None] = print_configurations,
) -> int:
    """Run a plan, or go on with it, and `show` what was measured, what failed and what is left out."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    opened = store.unfinished_run(results, wanted) if resume else store.new_run(results, wanted)
    with opened as folder, Progress() as progress:
        for text in wanted.left_out:
            progress.say(f"left out: {text}")
        records = execute(folder, progress)
    derive = deriver()
    if as_json:
        print_json([as_plain(record, derive(record)) for record in records])
    else:
        show(records, derive)
        print_left_out(wanted)
        click.echo(f"\nrecords: {folder.path}", err=True)
    return 1 if any(record.error for record in records) else 0


def print_left_out(plan: Plan) -> None:
    """A line for each reason why something asked for is not run."""
    for text in plan.left_out:
        click.echo(clean(f"left out: {text}"))
