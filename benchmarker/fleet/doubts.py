"""A fleet in one sentence, and what makes one doubt it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from benchmarker.fleet.words import MOST, grouped, listed, named
from benchmarker.formatting import count, part
from benchmarker.stats import outliers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarker.fleet.results import Cell, NodeResult
    from benchmarker.fleet.suspicions import Judgement
    from benchmarker.fleet.values import Measured


def percent(share: float) -> str:
    """Return a shift in words: `5.1%`."""
    return f"{abs(share):.1%}"


def headline(nodes: Sequence[NodeResult], cells: Sequence[Cell], delta: float) -> str:
    """Return the answer in one sentence."""
    worst: dict[str, Cell] = {}
    for cell in cells:
        if cell.is_named and (cell.node not in worst or abs(cell.shift) > abs(worst[cell.node].shift)):
            worst[cell.node] = cell
    of = count(len(nodes), "node")
    failed = [node.node for node in nodes if node.reasons]
    ended = f"; {named(failed)} failed, in whole or in part" if failed else ""
    if not worst:
        suspects = {cell.node for cell in cells if cell.verdict in ("undecided", "not judged")}
        left = f"; not decided: {named(sorted(suspects))}" if suspects else ""
        return f"none of {of} is shown to differ from the others by more than {delta:.0%}{left}{ended}"
    told = [
        f"{cell.node} by {percent(cell.shift)} ({cell.name}{'' if cell.device is None else f', device {cell.device}'})"
        if cell.verdict == "slower"
        else f"{cell.node}, which is faster, by {percent(cell.shift)} ({cell.name})"
        for cell in list(worst.values())[:MOST]
    ]
    more = f" and {len(worst) - MOST} more" if len(worst) > MOST else ""
    slow = any(cell.verdict == "slower" for cell in worst.values())
    what = "slower than the others" if slow else "unlike the others"
    verb = "is" if len(worst) == 1 else "are"
    return f"{len(worst)} of {of} {verb} {what}: {'; '.join(told)}{more}{ended}"


def unlike(measured: Measured) -> dict[str, list[str]]:
    """Return how the properties of nodes differ from those of most nodes, in words, by node."""
    known = {name: node.properties for name, node in measured.nodes.items() if node.properties}
    found: dict[str, list[str]] = {}
    for key in dict.fromkeys(key for each in known.values() for key in each):
        values = Counter(each.get(key, "none") for each in known.values())
        usual, number = values.most_common(1)[0]
        for name, each in known.items():
            if (value := each.get(key, "none")) != usual:
                found.setdefault(name, []).append(f"{key} {value}, not {usual} as {part(number, len(known), 'node')}")
    return found


def doubts(found: Judgement, cells: Sequence[Cell], nodes: Sequence[NodeResult], delta: float) -> list[str]:
    """Return what makes one doubt the result, the weightiest first."""
    told = []
    if not found.measured.complete:
        told.append("the run of the fleet is not complete: it goes on, or it was interrupted")
    told += [f"cannot read {fault}" for fault in found.measured.faults]
    told += grouped({node.node: "; ".join(node.reasons) for node in nodes if node.reasons})
    if len({found.nodes[at] for at in range(len(found.units))}) < outliers.LEAST_NODES:
        told.append(f"of fewer than {outliers.LEAST_NODES} nodes, none can be told to be unlike the others")
    if kinds := _several_kinds(found):
        told.append(kinds)
    told += _too_few(found, cells)
    told += grouped({node.node: listed(node.unlike) for node in nodes if node.unlike})
    if lacking := _lacking(found):
        told.append(lacking)
    scatter = found.scatter()
    if scatter > delta / 2:
        told.append(
            f"trials of one node scatter by {scatter:.1%}, so a shift may have to be more than "
            f"{delta + 1.3 * scatter:.1%} to be seen"
        )
    return told


def _several_kinds(found: Judgement) -> str:
    """Return that most nodes differ among themselves, as where half of a fleet is slow: no median is typical then."""
    spreads = outliers.spreads(found.levels)
    wide = [at for at, spread in enumerate(spreads) if spread > max(found.margin, found.scatter())]
    if not wide:
        return ""
    widest = max(wide, key=lambda at: spreads[at])
    return (
        f"in {part(len(wide), len(found.columns), 'case')}, nodes differ among themselves more than trials of one, by "
        f"{spreads[widest]:.1%} (standard deviation): the fleet may be of several kinds; compare those of one kind"
    )


def _too_few(found: Judgement, cells: Sequence[Cell]) -> list[str]:
    """Return that suspicions are not judged, and what to do about it."""
    several = [cell for cell in cells if cell.verdict == "not judged"]
    if not several:
        return []
    suspects = named(list(dict.fromkeys(cell.node for cell in several)))
    tests = max(1, len(found.suspicions))
    rounds = -(-3 * outliers.fewest_rounds(tests, found.alpha) // 2) + 1
    return [
        f"{count(len(several), 'suspicion is', 'suspicions are')} not judged ({suspects}), because "
        f"{several[0].reason.split(';')[0]} cannot decide; measure with --rounds={rounds}, or let `nodes run` repeat "
        "the suspects"
    ]


def _lacking(found: Judgement) -> str:
    """Return that cases were not measured on all nodes."""
    cases = found.measured.cases
    having = {
        case: sum(any(column.case == case for column in node.step_s) for node in found.measured.nodes.values())
        for case in cases
    }
    few = {case: number for case, number in having.items() if number < len(found.names)}
    if not few:
        return ""
    return f"{part(len(few), len(cases), 'case')} were not measured on all nodes; at least on {min(few.values())}"
