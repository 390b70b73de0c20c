"""A page about a fleet: the answer, heat maps of nodes, links and cases, the suspicions, and how nodes differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec

from benchmarker.fleet.results import Cell, FleetResult
from benchmarker.formatting import count, sentence
from benchmarker.page.page_model import (
    Axis,
    Card,
    Doubt,
    Figure,
    Heat,
    Listing,
    Page,
    Section,
    drawn,
    searchable,
    table_of,
)
from benchmarker.tables.table import P_VALUE, Column, Table, number

MOST_CARDS = 6
MOST_OTHERS = 3
"""Most other cases that a card lists."""
MOST_ROWS = 300
"""Most nodes or devices of the heat map: those that stand out most."""
FULL = 3
"""Shift at which the colours of the heat map are full, in δ."""
UNDOUBTED = "Every node completed its trials, and all nodes are of one kind."


def page(found: FleetResult) -> Page:
    """Return the page of a fleet; a case is not named where it is the only one."""
    if len({cell.case for cell in found.cells}) == 1:
        found = msgspec.structs.replace(found, cells=[_only(cell) for cell in found.cells])
    of_nodes = [cell for cell in found.cells if not cell.ends]
    sections = []
    if of_nodes or not found.links:
        parts = (_heat(found, of_nodes, "node"), _cells(of_nodes))
        sections.append(Section("nodes", "Nodes and cases", (f"{found.shared}.",), parts))
    if of_links := [cell for cell in found.cells if cell.ends]:
        slow = [
            f"All links of {node.node} are slower: {'; '.join(node.slow_links)}."
            for node in found.nodes
            if node.slow_links
        ]
        sections.append(Section("links", "Links", tuple(slow), (_heat(found, of_links, "link"), _cells(of_links))))
    every = (*found.nodes, *found.links)
    if unlike := [(each.node, text) for each in every for text in (*each.reasons, *each.unlike)]:
        columns = (Column("node"), Column("what", prose=True))
        caption = "Nodes that failed in whole or in part, and properties in which a node differs from most others."
        by_node = Listing("By node", Table(columns, tuple(unlike)), caption, searched=True)
        sections.append(Section("differences", "Faults and differences", (), (by_node,)))
    sections.append(Section("method", "Method", (sentence(found.method), _family(found))))
    return Page(
        f"Outliers among {count(len(found.nodes), 'node')}",
        sentence(found.headline if found.named else found.shared),
        tuple(_cards(found.named)[:MOST_CARDS]) or (_all_alike(found),),
        tuple(Doubt(sentence(text), "differences" if unlike else "method") for text in found.doubts),
        tuple(sections),
        UNDOUBTED,
    )


def _only(cell: Cell) -> Cell:
    return msgspec.structs.replace(cell, case="step time")


def _cards(named: Sequence[Cell]) -> list[Card]:
    """Return a card for each node, device or link: its largest shift, its other cases, and what goes with them."""
    by_row: dict[str, list[Cell]] = {}
    for cell in named:
        by_row.setdefault(_row(cell), []).append(cell)
    return [_card(row, sorted(cells, key=lambda cell: -abs(cell.shift))) for row, cells in by_row.items()]


def _card(row: str, cells: Sequence[Cell]) -> Card:
    worst, *others = cells
    ends = "" if worst.low is None or worst.high is None else f"95% interval {worst.low:+.1%} to {worst.high:+.1%}"
    p = "" if worst.p_adjusted is None else f"p = {worst.p_adjusted:.2g}"
    also = ", ".join(f"{cell.name} {cell.shift:+.1%}" for cell in others[:MOST_OTHERS])
    more = f" and {len(others) - MOST_OTHERS} more" if len(others) > MOST_OTHERS else ""
    evidence = "; ".join(dict.fromkeys(text for cell in cells for text in cell.evidence))
    told = (
        ", ".join(filter(None, (ends, p))),
        f"Also {also}{more}" if also else "",
        sentence(evidence)[:-1] if evidence else "Nothing that is recorded explains it",
    )
    detail = " ".join(f"{text}." for text in told if text)
    return Card(
        "slower" if worst.verdict == "slower" else "faster",
        worst.verdict,
        f"{row}: {worst.name}.",
        f"{worst.shift:+.1%}",
        detail,
    )


def _all_alike(found: FleetResult) -> Card:
    return Card("none", "none named", sentence(found.headline), f"{len(found.nodes)}", "nodes")


def _family(found: FleetResult) -> str:
    tested = f"{count(found.suspicions, 'suspicion')} {'was' if found.suspicions == 1 else 'were'} tested together"
    against = f", against {found.against}" if found.suspicions else ""
    return (
        f"{tested}{against}. The probability of any false alarm, a node or link whose shift is within "
        f"{found.delta:.0%}, is at most {found.alpha:.0%}."
    )


def _row(cell: Cell) -> str:
    return cell.node if cell.device is None else f"{cell.node} device {cell.device}"


def _heat(found: FleetResult, cells: Sequence[Cell], what: str) -> Figure:
    """Return the heat map of cells of nodes or of links; its rows are sorted by their largest shift, slow or fast."""
    by_row: dict[str, dict[str, Cell]] = {}
    for cell in cells:
        by_row.setdefault(_row(cell), {})[cell.name] = cell
    named = {_row(cell) for cell in cells if cell.is_named}
    rows = sorted(by_row, key=lambda row: (row not in named, -_largest(by_row[row])))
    columns = sorted({cell.name for cell in cells})
    shown, left = drawn(rows, MOST_ROWS, "rows")
    heat = Heat(
        "shift",
        tuple(columns),
        tuple(tuple(by_row[row][name].shift if name in by_row[row] else None for name in columns) for row in shown),
        tuple(tuple(_text(by_row[row].get(name)) for name in columns) for row in shown),
        FULL * found.delta,
    )
    return Figure(
        "heat" if what == "node" else "heat-of-links",
        "Shift of the step time",
        f"How much longer the step of each {what} takes than that of the others. Suspects were compared with controls "
        "that ran at the same time; the rest, with the median of all in the first rounds. Those that stand out most "
        f"are at the top. Orange is slower, blue is faster; colours are full at ±{FULL * found.delta:.0%}.",
        Axis(""),
        (heat,),
        _table([by_row[row][name] for row in rows for name in columns if name in by_row[row]]),
        rows=tuple(shown),
        left_out=left,
    )


def _largest(cells: Mapping[str, Cell]) -> float:
    return max(abs(cell.shift) for cell in cells.values())


def _text(cell: Cell | None) -> str:
    return "" if cell is None else f"{_row(cell)}, {cell.name}: {cell.shift:+.1%}, {cell.verdict}"


def _cells(cells: Sequence[Cell]) -> Listing:
    suspected = [cell for cell in cells if cell.is_suspected]
    caption = (
        "p tests a shift beyond δ and is corrected for all suspicions; ≠ marks outliers."
        if suspected
        else "No outlier was suspected."
    )
    return searchable("Suspicions", _table(suspected), caption)


def _table(cells: Sequence[Cell]) -> Table:
    devices = [(number("device"), lambda cell: cell.device)] if any(cell.device is not None for cell in cells) else []
    evidence = [(Column("evidence", prose=True), _evidence)] if any(map(_evidence, cells)) else []
    table = table_of(
        cells,
        (Column("where" if any(cell.ends for cell in cells) else "node"), lambda cell: cell.node),
        *devices,
        (Column("case"), lambda cell: cell.name),
        (number("step_time", "s"), lambda cell: cell.step_s),
        (number("shift", "%"), lambda cell: cell.shift),
        (number("shift_from", "%"), lambda cell: cell.low),
        (number("shift_to", "%"), lambda cell: cell.high),
        (number("p", P_VALUE), lambda cell: cell.p_adjusted),
        (number("rounds"), lambda cell: cell.rounds),
        (Column("verdict"), lambda cell: cell.verdict),
        *evidence,
    )
    return replace(table, marked=frozenset(at for at, cell in enumerate(cells) if cell.is_named))


def _evidence(cell: Cell) -> str:
    return "; ".join(filter(None, [cell.reason, *cell.evidence]))
