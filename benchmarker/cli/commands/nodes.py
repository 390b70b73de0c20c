"""The group `nodes`: measures all nodes of an allocation, and shows the outliers."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from benchmarker.api.errors import UserError
from benchmarker.cli.display.output import ALL, Output, output_options
from benchmarker.cli.display.progress import Line, progress_options, working
from benchmarker.cli.options.case import suite_options
from benchmarker.cli.options.judging import alpha_option, delta_option
from benchmarker.cli.options.results import results_argument
from benchmarker.cli.options.types import File, Integer, complete_plan_file, complete_suite, results_option
from benchmarker.comparing.results import DELTAS
from benchmarker.display.result import Part, Text
from benchmarker.files import atomic
from benchmarker.fleet import run, values
from benchmarker.fleet.doubts import sentence
from benchmarker.fleet.judge import judge
from benchmarker.fleet.results import Cell, FleetResult
from benchmarker.fleet.values import read_fleet
from benchmarker.formatting import clean, count
from benchmarker.library.reporting import output_path, write_page
from benchmarker.planning import suites
from benchmarker.procurement import junit
from benchmarker.tables.table import P_VALUE, Column, Filled, Shown, Table, coloured, interval, number

SUITE = "node-health"
ROUNDS = 3


@click.command("run")
@click.argument("plan", required=False, shell_complete=complete_plan_file, type=click.Path(path_type=Path))
@click.option(
    "--suite", metavar="NAME", shell_complete=complete_suite, help=f"The suite to run on each node. [default: {SUITE}]"
)
@click.option("--nodes", default=run.ALL, metavar="all|N|NAME,...", help="Nodes of the allocation.")
@suite_options
@click.option("--rounds", type=Integer(min=1), default=ROUNDS, help="Trials of each case before suspects are repeated.")
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
@click.option(
    "-o", "--output", type=File(), help="Also write a page with a heat map, .html, or the heat map: .svg, .pdf or .png."
)
@output_options(top=ALL)
def show_command(
    results: tuple[Path, ...], delta: float | None, alpha: float, every: bool, xml: Path | None, output: Path | None
) -> Output:
    """Show the outliers among the nodes, devices and links of a fleet, the slowest first, with the evidence.

    RESULT is the folder of a fleet that `nodes run` measured. Several RESULTs may be runs on several machines, which
    are identified by host name. The first rounds select suspects; only later rounds, together with control nodes,
    decide. The probability that any node within --delta of the others is called an outlier is at most --alpha.

    The exit status is 1 if a node or link is an outlier, if a node, link or trial failed, or if a file cannot be read;
    otherwise 0.
    """
    if output:
        output_path(output)
    with working("reading the nodes"):
        measured = values.read(results)
        judged = judge(measured, alpha, delta or DELTAS["trial"])
    if xml:
        atomic.save(xml, junit_of(str(results[0]), judged))
    if output:
        from benchmarker.page.fleet import page

        click.echo(write_page(page(judged), output), err=True)
    return Output(fleet_output(judged, every=every), judged, 0 if judged.is_ok and not measured.faults else 1)


SHOWN = 10
"""Cells that are shown besides those of named nodes, unless all are asked for."""
_COLOURS = {"slower": "red", "faster": "yellow", "undecided": "yellow", "not judged": "yellow"}


def fleet_output(found: FleetResult, *, every: bool = False) -> Iterator[Part]:
    """Yield a fleet: the answer, a table from the slowest on, evidence, and what makes one doubt it."""
    yield Text(found.headline, "  ", "red" if found.named else "")
    if found.cells:
        yield Text(f"  {found.shared}", "    ")
        yield from _cells_output(found.cells, every=every)
    for cell in found.named:
        for text in cell.evidence:
            yield Text(f"  {cell.where}, {cell.name}: {text}", "    ")
    for text in found.doubts:
        yield Text(f"  note: {text}", "    ")
    if found.suspicions:
        yield Text(
            f"  {count(found.suspicions, 'suspicion')} tested together, against {found.against}; "
            f"at most {found.alpha:.0%} false alarms; δ {found.delta:.0%}",
            "    ",
        )


def _cells_output(cells: Sequence[Cell], *, every: bool) -> Iterator[Part]:
    chosen = [cell for cell in cells if cell.is_suspected]
    rest = [cell for cell in cells if not cell.is_suspected]
    chosen += rest if every else rest[: max(0, SHOWN - len(chosen))]
    columns: list[Filled] = [
        (Column("where" if any(cell.ends for cell in cells) else "node"), [c.node for c in chosen])
    ]
    if any(cell.device is not None for cell in cells):
        columns.append((number("device"), [cell.device for cell in chosen]))
    if len({cell.name for cell in cells}) > 1:
        columns.append((Column("case"), [cell.name for cell in chosen]))
    ends = [(cell.low, cell.high) for cell in chosen]
    columns += [
        (number("step_time_s", "s"), [cell.step_s for cell in chosen]),
        (number("shift", form="+.1%"), [cell.shift for cell in chosen]),
        (Column("95% interval", only="print"), [Shown(None, _range(*pair)) for pair in ends]),
        *interval("shift", ends),
        (number("p", P_VALUE), [cell.p_adjusted for cell in chosen]),
        (number("rounds"), [cell.rounds for cell in chosen]),
        (Column("verdict"), [coloured(cell.verdict, _COLOURS.get(cell.verdict, "")) for cell in chosen]),
    ]
    yield Table.of_columns(columns, drop=["rounds", "step time"], ordered=True)
    if len(chosen) < len(cells):
        yield f"{count(len(cells) - len(chosen), 'row')} of cells that are not suspected: --all shows them"


def _range(low: float | None, high: float | None) -> str:
    return "-" if low is None or high is None else f"{low:+.1%} to {high:+.1%}"


def junit_of(name: str, found: FleetResult) -> bytes:
    """Return JUnit XML with a test for each node and each link.

    It fails if the node or link is an outlier, or if all links of a node are not. It has an error if the node
    or a trial failed, and is skipped if a suspicion could not be judged.
    """
    tests = []
    for node in (*found.nodes, *found.links):
        cells = [cell for cell in found.cells if cell.node == node.node]
        named = [sentence(cell) for cell in cells if cell.is_named]
        named += [f"all of its links are slower than the others: {case}" for case in node.slow_links]
        open_ = [f"{cell.name}: {cell.reason}" for cell in cells if cell.verdict == "not judged"]
        duration_s = 0.0
        output = "\n".join([*(text for cell in cells if cell.is_named for text in cell.evidence), *node.unlike])
        if node.reasons:
            item = junit.Item(node.node, duration_s, "error", "; ".join([*node.reasons, *named]), output)
        elif named:
            item = junit.Item(node.node, duration_s, "failure", "; ".join(named), output)
        elif open_:
            item = junit.Item(node.node, duration_s, "skipped", "; ".join(open_), output)
        else:
            item = junit.Item(node.node, duration_s, output=output)
        tests.append(item)
    return junit.document(clean(name), tests)
