"""`benchmarker suite`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from benchmarker.api.errors import UserError
from benchmarker.cli.display.output import json_option, print_json, print_table
from benchmarker.cli.execution import execute_plan, made
from benchmarker.cli.options.case import store_options
from benchmarker.cli.preview import preview
from benchmarker.planning import factors, suites

if TYPE_CHECKING:
    from pathlib import Path


@click.group("suite", invoke_without_command=True, short_help="List the built-in benchmark suites, or run one.")
@click.pass_context
def command(context: click.Context) -> None:
    """List or run the built-in benchmark suites, which are curated plans; `run-plan` runs plans of your own."""
    if context.invoked_subcommand is None:
        raise UserError("no subcommand was given; use `suite list` or `suite run NAME`")


@command.command("list")
@json_option
def list_command(as_json: bool) -> None:
    """List the suites with their number of cases, trials of each case, and run time.

    No framework is started. Cases that a framework does not support here are left out when the suite runs.
    """
    found = [
        {
            "name": suite.name,
            "cases": len(factors.expand(suite.plan)),
            "trials": suite.plan.trials,
            "time": suite.time,
            "summary": suite.summary,
        }
        for suite in map(suites.find, suites.names())
    ]
    if as_json:
        print_json(found)
    else:
        print_table(list(found[0]), [[str(value) for value in each.values()] for each in found])


@command.command("run")
@click.argument("name")
@click.option("--framework", metavar="NAME[,NAME...]", help="Frameworks to measure, instead of those of the suite.")
@click.option(
    "--device",
    metavar="PLATFORM",
    help="A platform that the frameworks report, or gpu. [default: the framework's choice]",
)
@store_options
@click.option("--dry-run", is_flag=True, help="Run nothing; show what would run and how long it would take.")
@json_option
def run_command(
    name: str,
    framework: str | None,
    device: str | None,
    results: Path,
    resume: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Run the suite NAME; with --resume, continue an unfinished run.

    Cases that a framework or a device does not support are left out and reported. The exit status is 1 if a trial
    failed.
    """
    description = suites.find(name).plan
    if framework is not None:
        if not all(frameworks := [each.strip() for each in framework.split(",")]):
            raise UserError(f"--framework={framework}: a name is missing")
        description = replace(description, axes={**description.axes, "framework": frameworks})
    if device is not None:
        description = replace(description, base={**description.base, "device": device})
    plan = made(description)
    if dry_run:
        return preview(plan, results, False, as_json)
    return execute_plan(plan, results, resume, as_json)
