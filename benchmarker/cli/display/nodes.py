"""Fleets as a table, and as JUnit XML."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from benchmarker.cli.display.output import Part, Text
from benchmarker.fleet.doubts import sentence
from benchmarker.formatting import clean, count, si
from benchmarker.procurement import junit
from benchmarker.tables.table import Table, coloured

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarker.fleet.results import Cell, FleetResult

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
    several = len({cell.name for cell in cells}) > 1
    devices = any(cell.device is not None for cell in cells)
    headings = [
        "where" if any(cell.ends for cell in cells) else "node",
        *(["device"] * devices),
        *(["case"] * several),
    ]
    headings += ["step time", "shift", "95% interval", "p", "rounds", "verdict"]
    yield Table.of(
        headings,
        [
            [
                cell.node,
                *(["-" if cell.device is None else str(cell.device)] * devices),
                *([cell.name] * several),
                si(cell.step_s, "s"),
                signed(cell.shift),
                "-" if cell.low is None or cell.high is None else f"{signed(cell.low)} to {signed(cell.high)}",
                "-" if cell.p_adjusted is None else f"{cell.p_adjusted:.2g}",
                str(cell.rounds),
                coloured(cell.verdict, _COLOURS.get(cell.verdict, "")),
            ]
            for cell in chosen
        ],
        drop=["rounds", "step time"],
    )
    if len(chosen) < len(cells):
        yield f"{count(len(cells) - len(chosen), 'row')} of cells that are not suspected: --all shows them"


def signed(share: float) -> str:
    """Return a shift as a percentage with its sign."""
    return f"{share:+.1%}"


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
