"""Runs a plan for a command: folder, progress, records and what was left out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchmarker.api.errors import UserError
from benchmarker.cli.display.output import print_json_list, print_text
from benchmarker.cli.display.progress import Progress, working
from benchmarker.cli.display.records import as_plain, print_cases
from benchmarker.cli.preview import preview, print_left_out
from benchmarker.comparing import disturbances
from benchmarker.hooks.metrics import load_metrics
from benchmarker.planning import build, plan_file
from benchmarker.records import store
from benchmarker.running.run import execute

if TYPE_CHECKING:
    from benchmarker.planning.factors import Description
    from benchmarker.records.plan import Plan


def planned(file: Path) -> Plan:
    """Return the plan of a file; a `UserError` about its content names the file."""
    description = plan_file.read(file)
    try:
        return made(description)
    except UserError as error:
        raise UserError(f"{file}: {error}") from error


def made(description: Description) -> Plan:
    """Return the plan of a description; a terminal shows a status line meanwhile."""
    with working("querying the frameworks' capabilities"):
        return build.from_description(description)


def execute_plan(
    wanted: Plan,
    results: Path,
    resume: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Run or resume a plan, then print what was measured, failed, left out and disturbed; or preview it.

    Returns the exit status: 1 if a trial failed, otherwise 0. Raises `UserError` if a preview is to resume a run.
    """
    if dry_run and resume:
        raise UserError("--dry-run shows the whole plan; leave --dry-run or --resume out")
    if dry_run:
        return preview(wanted, results, False, as_json)
    opened = store.unfinished_run(results, wanted) if resume else store.new_run(results, wanted)
    with opened as folder, Progress() as progress:
        for text in wanted.left_out:
            progress.say(f"left out: {text}")
        records = execute(folder, progress)
    derive = load_metrics()
    if as_json:
        print_json_list(as_plain(record, derive(record)) for record in records)
    else:
        print_cases(records, derive, remedy="`show --wide` shows")
        print_left_out(wanted)
        if several := [record for record in records if record.case.each]:
            from benchmarker.cli.display.scaling import print_devices
            from benchmarker.comparing.scaling import scalings

            click.echo()
            print_devices(scalings(several, derive).devices)
    found = disturbances.of_records(records)
    if found.number:
        print_text(f"{found}; {found.advice}", "  ", err=as_json)
    if not as_json:
        click.echo(f"\nrecords: {folder.path}", err=True)
    return 1 if any(record.error for record in records) else 0
