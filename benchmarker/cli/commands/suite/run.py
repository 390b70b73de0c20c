"""`benchmarker suite run`."""

from __future__ import annotations

import math
import shutil
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from benchmarker.api.claim import Claim
from benchmarker.api.errors import UserError
from benchmarker.cli.display.output import Output, View, output_options
from benchmarker.cli.display.progress import progress_options, quiet, verbose
from benchmarker.cli.execution import execute_plan, made, spread
from benchmarker.cli.options import completion
from benchmarker.cli.options.case import dry_run_option, spread_options, store_options
from benchmarker.cli.options.types import Duration, Folder, Integer
from benchmarker.formatting import clean, count
from benchmarker.planning import suites
from benchmarker.proving.proof import load_proof, proofs, prove
from benchmarker.tables.table import Table

if TYPE_CHECKING:
    from benchmarker.proving.proof import Entry


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
    help="A platform that the frameworks report, or gpu. [default: the framework's choice; for a proof: cuda]",
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
@click.option(
    "-o",
    "--output",
    type=Folder(),
    help="Folder for everything that a proof writes. [default: the suite's name]",
)
@click.option("--only", metavar="TEST[,TEST...]", help="Tests of a proof to run, instead of all.")
@click.option("--again", metavar="TEST[,TEST...]", help="Tests of a proof to repeat; the results of others are kept.")
@click.option(
    "--minutes",
    "limit_s",
    type=Duration("m", min=0, min_open=True),
    help="Time for a proof; a test is skipped if its time limit exceeds what is left: 9, 90s, 1.5h.",
)
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
    output: Path | None,
    only: str | None,
    again: str | None,
    limit_s: float | None,
    view: View,
) -> Output:
    """Run the suite NAME.

    A plan stores records in --results; with --resume, an unfinished run continues. Cases that a framework or a device
    does not support are left out and reported. With --runs, the rounds are spread over several runs in one folder, each
    of which counts as a run in scores and comparisons. The exit status is 1 if a trial failed.

    A proof runs its tests one after the other and stores everything in --output; the same command continues it. The
    exit status is 0 if tests passed, none failed and none is left; otherwise 1.
    """
    if name in proofs():
        _refuse("a proof", "framework", "threads", "results", "resume", "runs", "pause_s")
        if dry_run:
            return _claims(name)
        seconds = math.inf if limit_s is None else limit_s
        return _prove(
            name,
            output or Path(name),
            device or "cuda",
            seconds,
            _words(again),
            _words(only),
            as_json=view.form == "json",
        )
    description = suites.find(name).plan
    _refuse("a plan", "output", "only", "again", "limit_s")
    if framework is not None:
        if not all(frameworks := [each.strip() for each in framework.split(",")]):
            raise UserError(f"--framework={framework}: a name is missing")
        description = replace(description, axes={**description.axes, "framework": frameworks})
    given = {key: value for key, value in (("device", device), ("threads", threads)) if value is not None}
    description = replace(description, base={**description.base, **given})
    return execute_plan(spread(made(description), runs, pause_s), results, resume, dry_run)


def _refuse(kind: str, *names: str) -> None:
    """Raise `UserError` if an option was given that this kind of suite does not have."""
    context = click.get_current_context()
    for param in context.command.params:
        if param.name in names and context.get_parameter_source(param.name) is not ParameterSource.DEFAULT:
            raise UserError(f"{context.params['name']} is {kind}, which has no {param.opts[-1]}; leave it out")


def _words(text: str | None) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()] if text else []


def _claims(name: str) -> Output:
    claims = load_proof(name).claims
    rows = [[claim.name, f"{claim.limit_s:.0f} s", claim.statement] for claim in claims]
    data = [{"name": claim.name, "statement": claim.statement, "limit_s": claim.limit_s} for claim in claims]
    return Output([Table.of(["test", "limit", "statement"], rows)], data)


def _prove(
    name: str, folder: Path, device: str, seconds: float, again: list[str], only: list[str], *, as_json: bool
) -> Output:
    """Try the claims and print a line for each as it ends."""
    width = max(len(claim.name) for claim in load_proof(name).claims)

    def say(what: Entry | Claim) -> None:
        if isinstance(what, Claim):
            line = f"{what.name}: at most {what.limit_s:.0f} s: {what.statement} ..."
            if verbose():
                click.echo(line, err=True)
            elif sys.stderr.isatty() and not quiet():
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
    counts = Counter(entry.verdict for entry in summary.entries)
    said = [f"{counts[verdict]} {verdict}" for verdict in ("PASS", "FAIL", "not here")]
    click.echo(f"\n{', '.join(said)}; {clean(str(folder / 'summary.md'))}", err=True)
    if summary.left:
        click.echo(
            f"{count(len(summary.left), 'test is', 'tests are')} left; the same command continues: "
            f"{', '.join(summary.left)}",
            err=True,
        )
    return Output(data=summary, status=0 if counts["PASS"] and not counts["FAIL"] and not summary.left else 1)
