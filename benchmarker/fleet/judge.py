"""Judge a fleet: which cells are named, and on what evidence (benchmarker/stats/outliers.py)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from benchmarker.fleet.doubts import doubts, headline, unlike
from benchmarker.fleet.evidence import evidence
from benchmarker.fleet.folder import Stage
from benchmarker.fleet.results import Cell, FleetResult, NodeResult, Verdict
from benchmarker.fleet.suspicions import LOOKS, Judgement
from benchmarker.hooks.names import names
from benchmarker.stats import outliers
from benchmarker.stats.verdict import holm

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarker.fleet.suspicions import Suspicion
    from benchmarker.fleet.values import Measured
    from benchmarker.hooks.names import Names
    from benchmarker.records.configurations import Factors

LEVEL = 0.95
"""Confidence level of the intervals."""


def judge(measured: Measured, alpha: float, delta: float) -> FleetResult:
    """Judge all nodes; with a probability of at most α, any is named whose shift against the others is within δ."""
    found = Judgement(measured, alpha, delta)
    cases = measured.cases
    called = names(list(cases.values())) if cases else None
    cells = _cells(found, dict(zip(cases, _short(called, list(cases.values())), strict=True)), alpha)
    differences = unlike(measured)
    nodes = [
        NodeResult(
            node=node.name,
            trials=node.trials,
            failures=dict(node.failures),
            trouble=node.trouble,
            unlike=differences.get(node.name, []),
        )
        for node in measured.nodes.values()
    ]
    return FleetResult(
        headline=headline(nodes, cells, delta),
        doubts=doubts(found, cells, nodes, delta),
        nodes=nodes,
        cells=cells,
        suspicions=len(found.suspicions),
        controls=found.controls if found.suspicions else [],
        alpha=alpha,
        delta=delta,
        shared=called.shared if called else "",
    )


def repeat(measured: Measured, alpha: float, delta: float) -> Stage | None:
    """Return what is to be measured again; None if nothing is, or if that was done as often as allowed.

    It is the suspicious cases, or of these the undecided ones, on their nodes and on the controls. Nodes that have had
    trouble are left alone.
    """
    if measured.repeats == LOOKS:
        return None
    found = Judgement(measured, alpha, delta)
    cells = found.suspects
    if measured.repeats:
        judged = _cells(found, {case: case for case in measured.cases}, alpha)
        open_ = {(cell.node, cell.device, cell.case, cell.part) for cell in judged if cell.verdict == "undecided"}
        cells = [cell for cell in cells if (*found.units[cell[0]], *found.columns[cell[1]]) in open_]
    columns = dict.fromkeys(found.columns[column].case for _, column in cells)
    nodes = dict.fromkeys(found.units[unit].node for unit, _ in cells)
    beside = found.controls if len(found.controls) + len(found.suspected) < len(found.names) else found.names
    well = [node for node in dict.fromkeys([*nodes, *beside]) if not measured.nodes[node].trouble]
    if not set(well) & nodes.keys() or len(well) < outliers.LEAST_NODES:
        return None
    rounds = outliers.enough_rounds(len(found.suspects), alpha / LOOKS)
    return Stage(well, rounds, [dict(measured.cases[case]) for case in columns])


def _short(called: Names | None, cases: Sequence[Factors]) -> list[str]:
    """Return the names of cases; where there is but one, that of all."""
    if called is None:
        return []
    return [each or called.whole[at] for at, each in enumerate(called.each)]


def _cells(found: Judgement, called: Mapping[str, str], alpha: float) -> list[Cell]:
    """Return all cells: the named ones first, then the suspects, then the others, each from the slowest on."""
    suspicions = {(each.unit, each.column): each for each in found.suspicions}
    p_values = [min(1.0, found.looks * each.p_value(found.margin)) for each in found.suspicions]
    adjusted = dict(zip(suspicions, holm(p_values), strict=True))
    shifts = outliers.shifts(found.levels)
    needed = outliers.fewest_rounds(max(1, len(suspicions)), found.alpha)
    cells = []
    for unit, column in zip(*np.nonzero(~np.isnan(shifts)), strict=True):
        at = (int(unit), int(column))
        of_unit, of_column = found.units[at[0]], found.columns[at[1]]
        suspicion = suspicions.get(at)
        common = {
            "node": of_unit.node,
            "device": of_unit.device,
            "case": called[of_column.case],
            "part": of_column.part,
            "step_s": found.step_s(of_unit, of_column),
        }
        if suspicion is None:
            cells.append(_unsuspected(common, float(shifts[at]), len(found.screening)))
        else:
            cells.append(_suspected(common, found, suspicion, float(shifts[at]), adjusted[at], alpha, needed))
    rank = {"slower": 0, "faster": 1, "undecided": 2, "not judged": 2, "alike": 3, "not suspected": 4}
    return sorted(cells, key=lambda cell: (rank[cell.verdict], -cell.shift))


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
    alpha: float,
    needed: int,
) -> Cell:
    shift, margin = suspicion.shift, found.margin
    ends = shift.interval(LEVEL) if shift else None
    verdict: Verdict = "not judged"
    rounds = shift.sizes[0] if shift else 0
    reason = ""
    if rounds < needed:
        reason = f"{rounds} deciding rounds; with {len(found.suspicions)} suspicions, {needed} are needed"
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
