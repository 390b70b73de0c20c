"""Judge a fleet: pick suspects by the first rounds, and decide by later ones (benchmarker/stats/outliers.py)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from benchmarker.fleet.doubts import doubts, headline, unlike
from benchmarker.fleet.evidence import evidence
from benchmarker.fleet.folder import Stage
from benchmarker.fleet.results import Cell, FleetResult, NodeResult, Verdict
from benchmarker.fleet.values import Column, Measured, Round, Unit
from benchmarker.hooks.names import names
from benchmarker.stats import outliers
from benchmarker.stats.verdict import holm

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarker.hooks.names import Names
    from benchmarker.records.configurations import Factors
    from benchmarker.stats.shift import Shift

LEVEL = 0.95
"""Confidence level of the intervals."""
LOOKS = 2
"""How often suspects are measured again at most: once more if the first time leaves some undecided."""
SCREENING_SHARE = 3
"""Where nothing was repeated, one round of so many picks the suspects, and the others decide."""


@dataclass(frozen=True, slots=True)
class Suspicion:
    """A suspicious cell, by the numbers of its unit and column, whether it is slow, and its test; None without one."""

    unit: int
    column: int
    is_slow: bool
    shift: Shift | None

    def p_value(self, margin: float) -> float:
        """p-value of the claim that the cell is further from the controls than the margin, on the side suspected."""
        if self.shift is None:
            return 1.0
        return self.shift.p_above(margin) if self.is_slow else self.shift.p_below(-margin)


class Judgement:
    """The numbers of a fleet: levels by unit and column, suspects, controls, and the test of each suspicion."""

    def __init__(self, measured: Measured, alpha: float, delta: float) -> None:
        self.measured, self.margin = measured, math.log1p(delta)
        self.looks = LOOKS if measured.repeats else 1
        self.alpha = alpha / self.looks
        self.names = list(measured.nodes)
        self.columns: list[Column] = list(dict.fromkeys(c for node in measured.nodes.values() for c in node.step_s))
        numbers = {name: number for number, name in enumerate(self.names)}
        self.units: list[Unit] = sorted(
            {unit for node in measured.nodes.values() for of in node.step_s.values() for unit in of},
            key=lambda unit: (numbers[unit.node], unit.device or 0),
        )
        self.nodes = [numbers[unit.node] for unit in self.units]
        self.rounds = sorted(
            {
                at
                for node in measured.nodes.values()
                for of in node.step_s.values()
                for each in of.values()
                for at in each
            }
        )
        self.screening, self.deciding = _split(self.rounds, measured.repeats > 0, alpha)

    @cached_property
    def levels(self) -> np.ndarray:
        """The logarithm of the median over the screening rounds of each unit (row) and column, NaN without one."""
        return np.array(
            [[_level(self._values(unit, column), self.screening) for column in self.columns] for unit in self.units]
        ).reshape(len(self.units), len(self.columns))

    @cached_property
    def scores(self) -> np.ndarray:
        """The scores of the levels."""
        return outliers.scores(self.levels, self.margin)

    @cached_property
    def suspects(self) -> list[tuple[int, int]]:
        """The suspicious cells, the most suspicious first."""
        return outliers.suspects(self.scores, self.nodes)

    @property
    def suspected(self) -> list[str]:
        """The nodes with a suspicious cell."""
        return list(dict.fromkeys(self.units[unit].node for unit, _ in self.suspects))

    @cached_property
    def controls(self) -> list[str]:
        """The nodes near the median that are measured again beside the suspects; if all rounds are one, all others."""
        suspected = {self.nodes[unit] for unit, _ in self.suspects}
        if not self.measured.repeats and self.deciding:
            return [name for number, name in enumerate(self.names) if number not in suspected]
        return [self.names[node] for node in outliers.controls(self.scores, self.nodes, suspected)]

    @cached_property
    def suspicions(self) -> list[Suspicion]:
        """The suspicious cells with their tests."""
        numbers = {name: number for number, name in enumerate(self.names)}
        controls = [numbers[name] for name in self.controls]
        suspected = {self.nodes[unit] for unit, _ in self.suspects}
        measured = len({self.nodes[unit] for unit in range(len(self.units))})
        by_round: dict[int, np.ndarray] = {}
        found = []
        for unit, column in self.suspects:
            if column not in by_round:
                by_round[column] = np.array([self._by_round(each, column) for each in self.units])
            others = outliers.references(self.nodes[unit], controls, suspected, measured)
            rows = np.isin(self.nodes, others)
            shift = outliers.shift_of(by_round[column][unit], by_round[column][rows]) if np.any(rows) else None
            found.append(Suspicion(unit, column, bool(self.scores[unit, column] > 0), shift))
        return found

    def step_s(self, unit: Unit, column: Column) -> float:
        """Return the median over all rounds."""
        return median(self._values(unit, column).values())

    def scatter(self) -> float:
        """Return the typical standard deviation of a trial's logarithm within a node and case; NaN if it is unknown."""
        found = []
        for unit in self.units:
            for column in self.columns:
                values = np.log(list(self._values(unit, column).values()) or [math.nan])
                if len(values) > 1:
                    found.append(float(values.std(ddof=1)))
        return median(found) if found else math.nan

    def _values(self, unit: Unit, column: Column) -> Mapping[Round, float]:
        return self.measured.nodes[unit.node].step_s.get(column, {}).get(unit, {})

    def _by_round(self, unit: Unit, column: int) -> np.ndarray:
        """Return the logarithms of the deciding rounds, NaN where there is none."""
        values = self._values(unit, self.columns[column])
        return np.array([math.log(values[at]) if at in values else math.nan for at in self.deciding])


def _split(rounds: Sequence[Round], repeated: bool, alpha: float) -> tuple[list[Round], list[Round]]:
    """Return the rounds that pick suspects, and those that decide; none decides if they are too few to do so."""
    if repeated:
        return [at for at in rounds if at[0] == 0], [at for at in rounds if at[0] > 0]
    first = max(1, len(rounds) // SCREENING_SHARE)
    if len(rounds) - first < outliers.fewest_rounds(1, alpha):
        return list(rounds), []
    return list(rounds[:first]), list(rounds[first:])


def _level(values: Mapping[Round, float], rounds: Sequence[Round]) -> float:
    known = [values[at] for at in rounds if at in values]
    return math.log(median(known)) if known else math.nan


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
