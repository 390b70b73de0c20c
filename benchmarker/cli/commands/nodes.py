"""The group `nodes`: measures all nodes of an allocation, and shows the outliers."""

from __future__ import annotations

from pathlib import Path

import click

from benchmarker.api.errors import UserError
from benchmarker.cli.display.nodes import fleet_output, junit_of
from benchmarker.cli.display.output import Output, output_options
from benchmarker.cli.display.progress import Line, progress_options, working
from benchmarker.cli.options.case import suite_options
from benchmarker.cli.options.judging import alpha_option, delta_option
from benchmarker.cli.options.results import results_argument
from benchmarker.cli.options.types import (
    File,
    Integer,
    complete_plan_file,
    complete_suite,
    results_option,
)
from benchmarker.comparing.results import DELTAS
from benchmarker.files import atomic
from benchmarker.fleet import run, values
from benchmarker.fleet.judge import judge
from benchmarker.fleet.values import read_fleet
from benchmarker.formatting import clean, si
from benchmarker.hooks.registry import needing
from benchmarker.planning import suites

SUITE = "node-health"
ROUNDS = 3


@click.command("run")
@click.argument("plan", required=False, shell_complete=complete_plan_file, type=click.Path(path_type=Path))
@click.option(
    "--suite",
    metavar="NAME",
    shell_complete=complete_suite,
    help=f"The suite to run on each node. [default: {SUITE}]",
)
@click.option("--nodes", default=run.ALL, show_default=True, metavar="all|N|NAME,...", help="Nodes of the allocation.")
@suite_options
@click.option(
    "--rounds",
    type=Integer(min=1),
    default=ROUNDS,
    show_default=True,
    help="Trials of each case before suspects are repeated.",
)
@click.option("--no-repeat", is_flag=True, help="Do not repeat suspects; needs --rounds=9 or more.")
@delta_option
@alpha_option
@results_option("Folder for the fleet.")
@progress_options
@output_options()
def run_command(
    plan: Path | None,
    suite: str | None,
    nodes: str,
    frameworks: list[str],
    settings: dict[str, str | int],
    rounds: int,
    no_repeat: bool,
    delta: float | None,
    alpha: float,
    results: Path,
) -> Output:
    """Measure all nodes of an allocation at the same time, and show the outliers.

    Each node runs the suite, or the PLAN file, on all of its devices: on each alone, and on all concurrently. Cases
    with nodes = 2 measure links between neighbours. Suspects are then measured again together with control nodes and
    links, and only those rounds decide. A node that fails is reported; the others continue.

      sbatch --nodes=4 --ntasks-per-node=1 --exclusive --wrap='python -m benchmarker nodes run'

    The exit status is 1 if a node or link is an outlier, or if a node, link or trial failed; otherwise 0.
    """
    if plan and suite:
        raise UserError("a PLAN file and --suite exclude each other; leave one out")
    name = suites.find(suite or SUITE).name if plan is None else plan.stem
    path, spec = run.begin(results, plan or suites.FOLDER / f"{name}.toml", name, nodes, rounds, frameworks, settings)
    delta = delta or DELTAS["trial"]
    with Line() as progress:
        try:
            run.run(path, spec, alpha, delta, not no_repeat, progress)
        except KeyboardInterrupt:
            progress.say(f"interrupted: what the nodes have measured is in {path}; `nodes show {path}` shows it")
            raise
    judged = judge(read_fleet(path), alpha, delta)
    return Output(fleet_output(judged), judged, 0 if judged.is_ok else 1, stored=f"fleet: {path}")


@click.command("show")
@results_argument
@delta_option
@alpha_option
@click.option("--all", "every", is_flag=True, help="Show every case of every node, not only the slowest.")
@click.option("--junit", "xml", type=File(), help="Also write JUnit XML.")
@click.option("-o", "--output", type=File(), help="Also write a page with a heat map: .html.")
@output_options()
def show_command(
    results: tuple[Path, ...],
    delta: float | None,
    alpha: float,
    every: bool,
    xml: Path | None,
    output: Path | None,
) -> Output:
    """Show the outliers among the nodes, devices and links of a fleet, the slowest first, with the evidence.

    RESULT is the folder of a fleet that `nodes run` measured. Several RESULTs may be runs on several machines, which
    are identified by host name. The first rounds select suspects; only later rounds, together with control nodes,
    decide. The probability that any node within --delta of the others is called an outlier is at most --alpha.

    The exit status is 1 if a node or link is an outlier, if a node, link or trial failed, or if a file cannot be read;
    otherwise 0.
    """
    if output and output.suffix.lower() not in (".html", ".htm"):
        raise UserError(f"--output={output}: the name of a page must end in .html")
    if output:
        with needing("report", "a page"):
            from benchmarker.report.render import render
    with working("reading the nodes"):
        measured = values.read(results)
        judged = judge(measured, alpha, delta or DELTAS["trial"])
    if xml:
        atomic.save(xml, junit_of(str(results[0]), judged))
    if output:
        from benchmarker.report.fleet import page

        content = render(page(judged))
        atomic.save(output, content)
        click.echo(f"page: {clean(str(output))} ({si(len(content), 'B')})", err=True)
    return Output(fleet_output(judged, every=every), judged, 0 if judged.is_ok and not measured.faults else 1)
