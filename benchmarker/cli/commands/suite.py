"""`benchmarker suite`."""

from __future__ import annotations

import math
import shutil
import signal
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from benchmarker.api.claim import Claim
from benchmarker.api.errors import UserError
from benchmarker.cli.display.output import json_option, print_json, print_table
from benchmarker.cli.display.progress import working
from benchmarker.cli.display.submissions import print_submissions
from benchmarker.cli.execution import execute_plan, made
from benchmarker.cli.options.case import store_options
from benchmarker.cli.options.types import Folder, Number
from benchmarker.cli.preview import preview
from benchmarker.hooks import registry
from benchmarker.planning import factors, suites
from benchmarker.procurement import submission
from benchmarker.proving.proof import load_proof, prove

if TYPE_CHECKING:
    from benchmarker.proving.proof import Entry


@click.group("suite", invoke_without_command=True, short_help="List the built-in benchmark suites, or run one.")
@click.pass_context
def command(context: click.Context) -> None:
    """List or run the suites: curated plans, which make records, and proofs, which try claims about the tool here.

    `run-plan` runs plans of your own. A plugin can add proofs.
    """
    if context.invoked_subcommand is None:
        raise UserError("no subcommand was given; use `suite list` or `suite run NAME`")


@command.command("list")
@json_option
def list_command(as_json: bool) -> None:
    """List the suites with version, number of cases and trials of each case, or of claims, and run time.

    No framework is started. Cases that a framework does not support here are left out when the suite runs.
    """
    found: list[dict[str, Any]] = [
        {
            "name": suite.name,
            "version": suite.plan.version,
            "cases": len(factors.expand(suite.plan)),
            "trials": suite.plan.trials,
            "claims": None,
            "time": suite.time,
            "summary": suite.summary,
        }
        for suite in map(suites.find, suites.names())
    ]
    for name in _proofs():
        proof = load_proof(name)
        claims = len(proof.claims)
        found.append(
            {
                "name": name,
                "version": None,
                "cases": None,
                "trials": None,
                "claims": claims,
                "time": proof.time,
                "summary": proof.summary,
            }
        )
    if as_json:
        print_json(found)
    else:
        cells = [["-" if value is None else str(value) for value in each.values()] for each in found]
        print_table(list(found[0]), cells)


@command.command("run")
@click.argument("name")
@click.option("--framework", metavar="NAME[,NAME...]", help="Frameworks to measure, instead of those of the suite.")
@click.option(
    "--device",
    metavar="PLATFORM",
    help="A platform that the frameworks report, or gpu. [default: the framework's choice; for a proof: cuda]",
)
@store_options
@click.option("--dry-run", is_flag=True, help="Run nothing; show what would run and how long it would take.")
@click.option(
    "-o",
    "--output",
    type=Folder(),
    help="Folder for everything that a proof writes. [default: the suite's name]",
)
@click.option("--only", metavar="CLAIM[,CLAIM...]", help="Claims of a proof to try, instead of all.")
@click.option("--again", metavar="CLAIM[,CLAIM...]", help="Claims of a proof to repeat; otherwise each is kept.")
@click.option(
    "--minutes",
    type=Number(min=0, min_open=True),
    help="Begin no claim of a proof whose limit exceeds what is left of this time.",
)
@json_option
def run_command(
    name: str,
    framework: str | None,
    device: str | None,
    results: Path,
    resume: bool,
    dry_run: bool,
    output: Path | None,
    only: str | None,
    again: str | None,
    minutes: float | None,
    as_json: bool,
) -> int:
    """Run the suite NAME.

    A plan stores records in --results; with --resume, an unfinished run continues. Cases that a framework or a device
    does not support are left out and reported. The exit status is 1 if a trial failed.

    A proof tries its claims one after the other and stores everything in --output, where the same command continues.
    The exit status is 0 if claims passed, none failed and none is left; otherwise 1.
    """
    if name in _proofs():
        _refuse("a proof", "framework", "results", "resume")
        if dry_run:
            return _print_claims(name, as_json)
        seconds = math.inf if minutes is None else minutes * 60
        return _prove(name, output or Path(name), device or "cuda", seconds, _words(again), _words(only), as_json)
    description = suites.find(name).plan
    _refuse("a plan", "output", "only", "again", "minutes")
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


@command.command("check")
@click.argument("results", metavar="RESULT|BUNDLE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--suite",
    metavar="NAME|FILE",
    help="The suite or the plan file that was to be run. [default: the suite of the name that the run states]",
)
@json_option
def check_command(results: tuple[Path, ...], suite: str | None, as_json: bool) -> int:
    """Check runs of a suite as handed in: list everything that is missing, failed, disturbed, changed or invalid.

    RESULT is the folder of a run, or a folder of runs; BUNDLE is a packed run, which is not unpacked. Checked are the
    suite, cases, trials, energy and profiles if the suite requests them, disturbances, the consistency of records,
    machine and software, and checksums. The exit status is 0 if nothing is found, otherwise 1.
    """
    with working("checking"):
        checked = [each for result in results for each in submission.check(result, suite)]
    if as_json:
        print_json(checked)
    else:
        print_submissions(checked)
    return 1 if any(each.findings for each in checked) else 0


def _proofs() -> list[str]:
    return [plugin.name for plugin in registry.registered("suite").values()]


def _refuse(kind: str, *names: str) -> None:
    """Raise `UserError` if an option was given that this kind of suite does not have."""
    context = click.get_current_context()
    for param in context.command.params:
        if param.name in names and context.get_parameter_source(param.name) is not ParameterSource.DEFAULT:
            raise UserError(f"{context.params['name']} is {kind}, which has no {param.opts[-1]}; leave it out")


def _words(text: str | None) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()] if text else []


def _print_claims(name: str, as_json: bool) -> int:
    claims = load_proof(name).claims
    if as_json:
        print_json([{"name": each.name, "statement": each.statement, "limit_s": each.limit_s} for each in claims])
    else:
        print_table(["claim", "limit", "statement"], [[x.name, f"{x.limit_s:.0f} s", x.statement] for x in claims])
    return 0


def _prove(
    name: str, folder: Path, device: str, seconds: float, again: list[str], only: list[str], as_json: bool
) -> int:
    """Try the claims and print a line for each as it ends."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    width = max(len(claim.name) for claim in load_proof(name).claims)

    def say(what: Entry | Claim) -> None:
        if isinstance(what, Claim):
            if sys.stderr.isatty():
                line = f"{what.name}: at most {what.limit_s:.0f} s: {what.statement} ..."
                click.echo(line[: shutil.get_terminal_size().columns - 1] + "\r", nl=False, err=True)
        else:
            texts = "; ".join(filter(None, (what.figure, what.reason)))
            erase = "\x1b[2K" if sys.stderr.isatty() else ""
            click.echo(erase, nl=False, err=True)
            line = f"{what.verdict:8}  {what.name:{width}}  {texts}".rstrip()
            if sys.stdout.isatty():
                line = click.wrap_text(line, shutil.get_terminal_size().columns, subsequent_indent=" " * (12 + width))
            click.echo(line, err=as_json)

    summary = prove(name, folder, device, seconds=seconds, again=again, only=only, say=say)
    if as_json:
        print_json(summary)
    counts = Counter(entry.verdict for entry in summary.entries)
    said = [f"{counts[verdict]} {verdict}" for verdict in ("PASS", "FAIL", "not here")]
    click.echo(f"\n{', '.join(said)}; {folder / 'summary.md'}", err=True)
    if summary.left:
        click.echo(
            f"{len(summary.left)} claims are left; the same command continues: {', '.join(summary.left)}", err=True
        )
    return 0 if counts["PASS"] and not counts["FAIL"] and not summary.left else 1
