"""Judge a fleet: which cells are named, and on what evidence (benchmarker/stats/outliers.py)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from benchmarker.fleet.doubts import doubts, headline, unlike
from benchmarker.fleet.evidence import evidence
from benchmarker.fleet.folder import LinkStage, Stage
from benchmarker.fleet.results import Cell, FleetResult, NodeResult, Verdict
from benchmarker.fleet.suspicions import LOOKS, Judgement
from benchmarker.hooks.names import names
from benchmarker.stats import outliers
from benchmarker.stats.verdict import holm

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from benchmarker.fleet.suspicions import Suspicion
    from benchmarker.fleet.values import Measured
    from benchmarker.hooks.names import Names
    from benchmarker.records.factors import Factors

LEVEL = 0.95
"""Confidence level of the intervals."""


@dataclass(frozen=True, slots=True)
class Again:
    """What is to be measured again on nodes, and on links; None if nothing is."""

    of_nodes: Stage | None
    of_links: LinkStage | None


def judge(measured: Measured, alpha: float, delta: float) -> FleetResult:
    """Judge all nodes and links; the probability is at most α that any is named whose shift is within δ."""
    found = _judgements(measured, alpha, delta)
    cases = {name: factors for each in found for name, factors in each.measured.cases.items()}
    called = names(list(cases.values())) if cases else None
    cells = _cells(found, dict(zip(cases, _short(called, list(cases.values())), strict=True)), alpha)
    of_nodes, *of_links = found
    nodes, links = _results(of_nodes, _slow_links(cells)), [each for of in of_links for each in _results(of)]
    return FleetResult(
        headline=headline(nodes, links, cells, delta),
        doubts=doubts(found, cells, [*nodes, *links], delta),
        nodes=nodes,
        links=links,
        cells=cells,
        suspicions=sum(len(each.suspicions) for each in found),
        controls=of_nodes.controls if of_nodes.suspicions else [],
        link_controls=[name for each in of_links if each.suspicions for name in each.controls],
        alpha=alpha,
        delta=delta,
        shared=called.shared if called else "",
    )


def repeat(measured: Measured, alpha: float, delta: float) -> Again | None:
    """Return what is to be measured again; None if nothing is, or if that was done as often as allowed.

    It is the suspicious cases, or of these the undecided ones, on their nodes and on the controls; and those of links.
    Nodes and links that have had trouble are left alone.
    """
    found = _judgements(measured, alpha, delta)
    cells = _cells(found, {case: case for each in found for case in each.measured.cases}, alpha)
    rounds = outliers.enough_rounds(max(1, sum(len(each.suspects) for each in found)), alpha / LOOKS)
    of_nodes, of_links = None, None
    for each in found:
        if each.measured.repeats < LOOKS and (chosen := _chosen(each, cells)):
            names_, columns = chosen
            cases = [dict(each.measured.cases[case]) for case in columns]
            if each.what == "node":
                of_nodes = Stage(names_, rounds, cases)
            else:
                links = [node.ends for node in each.measured.nodes.values() if node.ends and node.name in names_]
                of_links = LinkStage(links, rounds, cases)
    return Again(of_nodes, of_links) if of_nodes or of_links else None


def _judgements(measured: Measured, alpha: float, delta: float) -> list[Judgement]:
    """Return the numbers of the nodes, and those of the links if there are any."""
    return [Judgement(each, alpha, delta) for each in (measured, measured.links) if each is not None]


def _chosen(found: Judgement, judged: Sequence[Cell]) -> tuple[list[str], list[str]] | None:
    """Return which nodes or links are to be measured again, the suspects first, and in which cases; None if none is."""
    cells = found.suspects
    if found.measured.repeats:
        open_ = {(cell.node, cell.device, cell.case, cell.part) for cell in judged if cell.verdict == "undecided"}
        cells = [cell for cell in cells if (*found.units[cell[0]], *found.columns[cell[1]]) in open_]
    columns = dict.fromkeys(found.columns[column].case for _, column in cells)
    suspects = dict.fromkeys(found.units[unit].node for unit, _ in cells)
    beside = found.controls if len(found.controls) + len(found.suspected) < len(found.names) else found.names
    well = [name for name in dict.fromkeys([*suspects, *beside]) if not found.measured.nodes[name].trouble]
    if not set(well) & suspects.keys() or len(well) < outliers.LEAST_NODES:
        return None
    return well, list(columns)


def _results(found: Judgement, slow: Mapping[str, list[str]] | None = None) -> list[NodeResult]:
    """Return what is known of nodes or links beside their speed, and in which cases all links of a node are `slow`."""
    differences = unlike(found.measured) if found.what == "node" else {}
    return [
        NodeResult(
            node=node.name,
            ends=list(node.ends),
            trials=node.trials,
            failures=dict(node.failures),
            trouble=node.trouble,
            unlike=differences.get(node.name, []),
            slow_links=(slow or {}).get(node.name, []),
        )
        for node in found.measured.nodes.values()
    ]


def _slow_links(cells: Sequence[Cell]) -> dict[str, list[str]]:
    """Return the cases in which all links of a node are named, of the nodes that have several."""
    every: dict[tuple[str, str], list[bool]] = {}
    for cell in cells:
        for end in cell.ends:
            every.setdefault((end, cell.name), []).append(cell.is_named)
    slow: dict[str, list[str]] = {}
    for (node, case), named in every.items():
        if len(named) > 1 and all(named):
            slow.setdefault(node, []).append(case)
    return slow


def _short(called: Names | None, cases: Sequence[Factors]) -> list[str]:
    """Return the names of cases; where there is but one, that of all."""
    if called is None:
        return []
    return [each or called.whole[at] for at, each in enumerate(called.each)]


def _cells(found: Sequence[Judgement], called: Mapping[str, str], alpha: float) -> list[Cell]:
    """Return all cells: the named ones first, then the suspects, then the others, each from the slowest on.

    The suspicions of nodes and of links are corrected together.
    """
    p_values = [min(1.0, each.looks * one.p_value(each.margin)) for each in found for one in each.suspicions]
    adjusted = iter(holm(p_values))
    cells = [cell for each in found for cell in _cells_of(each, called, adjusted, len(p_values), alpha)]
    rank = {"slower": 0, "faster": 1, "undecided": 2, "not judged": 2, "alike": 3, "not suspected": 4}
    return sorted(cells, key=lambda cell: (rank[cell.verdict], -cell.shift))


def _cells_of(
    found: Judgement, called: Mapping[str, str], adjusted: Iterator[float], tests: int, alpha: float
) -> Iterator[Cell]:
    """Yield the cells of nodes or of links; the adjusted p-values are taken for each suspicion in turn."""
    suspicions = {(each.unit, each.column): (each, next(adjusted)) for each in found.suspicions}
    shifts = outliers.shifts(found.levels)
    for unit, column in zip(*np.nonzero(~np.isnan(shifts)), strict=True):
        at = (int(unit), int(column))
        of_unit, of_column = found.units[at[0]], found.columns[at[1]]
        common = {
            "node": of_unit.node,
            "ends": list(found.measured.nodes[of_unit.node].ends),
            "device": of_unit.device,
            "case": called[of_column.case],
            "part": of_column.part,
            "step_s": found.step_s(of_unit, of_column),
        }
        if at in suspicions:
            suspicion, p_adjusted = suspicions[at]
            yield _suspected(common, found, suspicion, float(shifts[at]), p_adjusted, tests, alpha)
        else:
            yield _unsuspected(common, float(shifts[at]), len(found.screening))


def _unsuspected(common: Mapping[str, object], shift: float, rounds: int) -> Cell:
    return Cell(
        **common,  # type: ignore[arg-type]
        verdict="not suspected",
        shift=math.expm1(shift),
        low=None,
        high=None,
        p_value=None,
        p_adjusted=None,
        rounds=rounds,
    )


def _suspected(
    common: Mapping[str, object],
    found: Judgement,
    suspicion: Suspicion,
    screened: float,
    p_adjusted: float,
    tests: int,
    alpha: float,
) -> Cell:
    shift, margin = suspicion.shift, found.margin
    needed = outliers.fewest_rounds(tests, found.alpha)
    ends = shift.interval(LEVEL) if shift else None
    verdict: Verdict = "not judged"
    rounds = shift.sizes[0] if shift else 0
    reason = ""
    if rounds < needed:
        reason = f"{rounds} deciding rounds; with {tests} suspicions, {needed} are needed"
    elif p_adjusted <= alpha:
        verdict = "slower" if suspicion.is_slow else "faster"
    elif ends and -margin <= ends[0] and ends[1] <= margin:
        verdict = "alike"
    else:
        verdict = "undecided"
    estimate = shift.estimate if shift else screened
    unit, column = found.units[suspicion.unit], found.columns[suspicion.column]
    return Cell(
        **common,  # type: ignore[arg-type]
        verdict=verdict,
        shift=math.expm1(estimate),
        low=math.expm1(ends[0]) if ends else None,
        high=math.expm1(ends[1]) if ends else None,
        p_value=suspicion.p_value(margin) if shift else None,
        p_adjusted=p_adjusted if shift else None,
        rounds=rounds,
        reason=reason,
        evidence=evidence(found.measured, unit.node, column.case),
    )
