"""Judge a fleet: which cells are named, and on what evidence (benchmarker/stats/outliers.py)."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from benchmarker.comparing.disturbances import OTHER_BUSY_CORES, PRESSURE_PERCENT, SLOWER_CLOCK, STEAL_PERCENT
from benchmarker.fleet.doubts import doubts, headline, unlike
from benchmarker.fleet.folder import LinkStage, Stage
from benchmarker.fleet.results import Cell, FleetResult, NodeResult, Verdict
from benchmarker.fleet.suspicions import LOOKS, Judgement, Suspicion
from benchmarker.fleet.values import Measured
from benchmarker.formatting import rounded
from benchmarker.hooks.names import Names, names
from benchmarker.stats import outliers
from benchmarker.stats.verdict import holm

LEVEL = 0.95
"""Confidence level of the intervals."""
WARMER_C = 5.0
POWER_SHARE = 0.05
"""Differences from the median of the other nodes from which a temperature or a power is mentioned."""
_NOTABLE = {
    "cores busy with other work": OTHER_BUSY_CORES,
    "% stolen by the hypervisor": STEAL_PERCENT,
    "% of the time waiting for a core": PRESSURE_PERCENT,
    "s throttled by its cgroup": 0.0,
}


@dataclass(frozen=True, slots=True)
class Repetition:
    """What is to be measured again on nodes, and on links; None if nothing is."""

    of_nodes: Stage | None
    of_links: LinkStage | None


def judge(measured: Measured, alpha: float, delta: float) -> FleetResult:
    """Judge all nodes and links; the probability is at most α that any is named whose shift is within δ."""
    judgements = _judgements(measured, alpha, delta)
    cases = {name: factors for judgement in judgements for name, factors in judgement.measured.cases.items()}
    called = names(list(cases.values())) if cases else None
    cells = _cells(judgements, dict(zip(cases, _short(called), strict=True)), alpha)
    of_nodes, *of_links = judgements
    nodes, links = (
        _results(of_nodes, _slow_links(cells)),
        [link for judgement in of_links for link in _results(judgement)],
    )
    return FleetResult(
        headline=headline(nodes, links, cells, delta),
        doubts=doubts(judgements, cells, [*nodes, *links], delta),
        nodes=nodes,
        links=links,
        cells=cells,
        suspicions=sum(len(judgement.suspicions) for judgement in judgements),
        controls=of_nodes.controls if of_nodes.suspicions else [],
        link_controls=[name for judgement in of_links if judgement.suspicions for name in judgement.controls],
        alpha=alpha,
        delta=delta,
        shared=called.shared if called else "",
    )


def repeat(measured: Measured, alpha: float, delta: float) -> Repetition | None:
    """Return what is to be measured again; None if nothing is, or if that was done as often as allowed.

    It is the suspicious cases, or of these the undecided ones, on their nodes and on the controls; and those of links.
    Nodes and links that have had trouble are left alone.
    """
    judgements = _judgements(measured, alpha, delta)
    cells = _cells(judgements, {case: case for judgement in judgements for case in judgement.measured.cases}, alpha)
    rounds = outliers.enough_rounds(max(1, sum(len(judgement.suspects) for judgement in judgements)), alpha / LOOKS)
    of_nodes, of_links = None, None
    for judgement in judgements:
        if judgement.measured.repeats < LOOKS and (chosen := _chosen(judgement, cells)):
            names_, columns = chosen
            cases = [dict(judgement.measured.cases[case]) for case in columns]
            if judgement.what == "node":
                of_nodes = Stage(names_, rounds, cases)
            else:
                links = [node.ends for node in judgement.measured.nodes.values() if node.ends and node.name in names_]
                of_links = LinkStage(links, rounds, cases)
    return Repetition(of_nodes, of_links) if of_nodes or of_links else None


def _judgements(measured: Measured, alpha: float, delta: float) -> list[Judgement]:
    """Return the numbers of the nodes, and those of the links if there are any."""
    return [Judgement(units, alpha, delta) for units in (measured, measured.links) if units is not None]


def _chosen(judgement: Judgement, judged: Sequence[Cell]) -> tuple[list[str], list[str]] | None:
    """Return which nodes or links are to be measured again, the suspects first, and in which cases; None if none is."""
    cells = judgement.suspects
    if judgement.measured.repeats:
        open_ = {(cell.node, cell.device, cell.case, cell.part) for cell in judged if cell.verdict == "undecided"}
        cells = [cell for cell in cells if (*judgement.units[cell[0]], *judgement.columns[cell[1]]) in open_]
    columns = dict.fromkeys(judgement.columns[column].case for _, column in cells)
    suspects = dict.fromkeys(judgement.units[unit].node for unit, _ in cells)
    beside = (
        judgement.controls
        if len(judgement.controls) + len(judgement.suspected) < len(judgement.names)
        else judgement.names
    )
    well = [name for name in dict.fromkeys([*suspects, *beside]) if not judgement.measured.nodes[name].trouble]
    if not set(well) & suspects.keys() or len(well) < outliers.LEAST_NODES:
        return None
    return well, list(columns)


def _results(judgement: Judgement, slow: Mapping[str, list[str]] | None = None) -> list[NodeResult]:
    """Return what is known of nodes or links beside their speed, and in which cases all links of a node are `slow`."""
    differences = unlike(judgement.measured) if judgement.what == "node" else {}
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
        for node in judgement.measured.nodes.values()
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


def _short(called: Names | None) -> list[str]:
    """Return the names of cases; where there is but one, that of all."""
    if called is None:
        return []
    return [name or called.whole[at] for at, name in enumerate(called.each)]


def _cells(judgements: Sequence[Judgement], called: Mapping[str, str], alpha: float) -> list[Cell]:
    """Return all cells: the named ones first, then the suspects, then the others, each from the slowest on.

    The suspicions of nodes and of links are corrected together.
    """
    p_values = [
        min(1.0, judgement.looks * one.p_value(judgement.margin))
        for judgement in judgements
        for one in judgement.suspicions
    ]
    adjusted = iter(holm(p_values))
    cells = [cell for judgement in judgements for cell in _cells_of(judgement, called, adjusted, len(p_values), alpha)]
    rank = {"slower": 0, "faster": 1, "undecided": 2, "not judged": 2, "alike": 3, "not suspected": 4}
    return sorted(cells, key=lambda cell: (rank[cell.verdict], -cell.shift))


def _cells_of(
    judgement: Judgement, called: Mapping[str, str], adjusted: Iterator[float], tests: int, alpha: float
) -> Iterator[Cell]:
    """Yield the cells of nodes or of links; the adjusted p-values are taken for each suspicion in turn."""
    suspicions = {(suspicion.unit, suspicion.column): (suspicion, next(adjusted)) for suspicion in judgement.suspicions}
    shifts = outliers.shifts(judgement.levels)
    for unit, column in zip(*np.nonzero(~np.isnan(shifts)), strict=True):
        at = (int(unit), int(column))
        of_unit, of_column = judgement.units[at[0]], judgement.columns[at[1]]
        common = {
            "node": of_unit.node,
            "ends": list(judgement.measured.nodes[of_unit.node].ends),
            "device": of_unit.device,
            "case": called[of_column.case],
            "part": of_column.part,
            "step_s": judgement.step_s(of_unit, of_column),
        }
        if at in suspicions:
            suspicion, p_adjusted = suspicions[at]
            yield _suspected(common, judgement, suspicion, float(shifts[at]), p_adjusted, tests, alpha)
        else:
            yield _unsuspected(common, float(shifts[at]), len(judgement.screening))


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
    judgement: Judgement,
    suspicion: Suspicion,
    screened: float,
    p_adjusted: float,
    tests: int,
    alpha: float,
) -> Cell:
    shift, margin = suspicion.shift, judgement.margin
    needed = outliers.fewest_rounds(tests, judgement.alpha)
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
    unit, column = judgement.units[suspicion.unit], judgement.columns[suspicion.column]
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
        evidence=_evidence(judgement.measured, unit.node, column.case),
    )


def _evidence(measured: Measured, node: str, case: str) -> list[str]:
    """Return in words which conditions of a node differ in a case from the median of the other nodes."""
    own = _medians(measured, node, case)
    others: dict[str, list[float]] = {}
    for name in measured.nodes:
        if name != node:
            for quantity, value in _medians(measured, name, case).items():
                others.setdefault(quantity, []).append(value)
    texts = []
    for quantity, value in own.items():
        usual = median(others[quantity]) if quantity in others else 0.0
        if _is_notable(quantity, value, usual):
            texts.append(f"{rounded(value, 3)} {quantity}, others {rounded(usual, 3)}")
    return texts


def _is_notable(quantity: str, value: float, usual: float) -> bool:
    if quantity in _NOTABLE:
        return value - usual > _NOTABLE[quantity]
    if quantity.startswith("devices slowed down"):
        return value > usual
    if "°C" in quantity or "temperature" in quantity:
        return abs(value - usual) > WARMER_C
    limit = SLOWER_CLOCK if "MHz" in quantity or "clock" in quantity else POWER_SHARE
    return abs(value - usual) > limit * abs(usual)


def _medians(measured: Measured, node: str, case: str) -> dict[str, float]:
    """Return the median over the trials of a case of each condition; a slowdown that one trial lacks is 0 in it."""
    trials = measured.nodes[node].conditions.get(case, {}).values()
    names = {name for trial in trials for name in trial}
    return {name: median(trial.get(name, 0.0) for trial in trials) for name in sorted(names)}
