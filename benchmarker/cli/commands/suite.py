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


@click.group("suite", invoke_without_command=True, short_help="List the suites of the project, or run one.")
@click.pass_context
def command(context: click.Context) -> None:
    """Run the curated plans that come with the project; `run-plan` runs one of your own."""
    if context.invoked_subcommand is None:
        raise UserError("say what to do: suite list, or suite run NAME")


@command.command("list")
@json_option
def list_command(as_json: bool) -> None:
    """List the suites: how many cases they ask for, how often each, and how long that takes.

    No framework is started: of the cases, those that it does not do here are left out when the suite runs.
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
@click.option("--framework", metavar="NAME[,NAME...]", help="Frameworks to measure, in place of those of the suite.")
@click.option("--device", metavar="PLATFORM", help="A platform that the frameworks report, or gpu; else they choose.")
@store_options
@click.option("--dry-run", is_flag=True, help="Show what would run, and how long it would take, and run nothing.")
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
    """Run the suite NAME; with --resume, go on with it.

    What a framework or a device does not do is left out and said. The exit status is 1 where a trial failed.
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
