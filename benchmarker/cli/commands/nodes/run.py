"""`benchmarker nodes run`."""

from __future__ import annotations

from pathlib import Path

import click

from benchmarker.api.errors import UserError
from benchmarker.cli.display.nodes import fleet_output
from benchmarker.cli.display.output import Output, output_options
from benchmarker.cli.display.progress import Line, progress_options
from benchmarker.cli.options import completion
from benchmarker.cli.options.judging import alpha_option, delta_option
from benchmarker.cli.options.types import Folder, Integer
from benchmarker.comparing.results import DELTAS
from benchmarker.fleet import run
from benchmarker.fleet.judge import judge
from benchmarker.fleet.values import read_fleet
from benchmarker.planning import suites

SUITE = "node-health"
ROUNDS = 3


@click.command("run")
@click.argument("plan", required=False, shell_complete=completion.plan_files, type=click.Path(path_type=Path))
@click.option(
    "--suite",
    metavar="NAME",
    shell_complete=completion.suites,
    help=f"The suite to run on each node. [default: {SUITE}]",
)
@click.option("--nodes", default=run.ALL, show_default=True, metavar="all|N|NAME,...", help="Nodes of the allocation.")
@click.option(
    "--framework",
    metavar="NAME[,NAME...]",
    shell_complete=completion.several("framework"),
    help="Frameworks to measure, instead of those of the suite.",
)
@click.option("--device", metavar="PLATFORM", help="A platform that the frameworks report, or gpu.")
@click.option("--threads", type=Integer(min=1), metavar="N", help="CPU threads to compute with.")
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
@click.option("--results", type=Folder(), default=Path("results"), show_default=True, help="Folder for the fleet.")
@progress_options
@output_options()
def command(
    plan: Path | None,
    suite: str | None,
    nodes: str,
    framework: str | None,
    device: str | None,
    threads: int | None,
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
    names = [word.strip() for word in framework.split(",")] if framework is not None else []
    if not all(names):
        raise UserError(f"--framework={framework}: a name is missing")
    settings = {key: value for key, value in (("device", device), ("threads", threads)) if value is not None}
    path, asked = run.begin(results, plan or suites.FOLDER / f"{name}.toml", name, nodes, rounds, names, settings)
    delta = delta or DELTAS["trial"]
    with Line() as progress:
        try:
            run.run(path, asked, alpha, delta, not no_repeat, progress)
        except KeyboardInterrupt:
            progress.say(f"interrupted: what the nodes have measured is in {path}; `nodes show {path}` shows it")
            raise
    found = judge(read_fleet(path), alpha, delta)
    return Output(fleet_output(found), found, 0 if found.is_ok else 1, stored=f"fleet: {path}")
