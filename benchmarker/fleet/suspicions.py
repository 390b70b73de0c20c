"""The numbers of a fleet, or of its links: levels of units and cases, suspects, controls, and tests."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median

import numpy as np

from benchmarker.fleet.values import CasePart, Measured, Round, Unit
from benchmarker.stats import outliers
from benchmarker.stats.shift import Shift

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
    """The numbers of a fleet: levels by unit and column, suspects, controls, and the test of each suspicion.

    Of links, only slow ones are suspected: a node whose links are slow makes those of the others the fast ones, which
    in a small fleet are half of all.
    """

    def __init__(self, measured: Measured, alpha: float, delta: float) -> None:
        self.measured, self.margin = measured, math.log1p(delta)
        self.what = "link" if any(node.ends for node in measured.nodes.values()) else "node"
        self.looks = LOOKS if measured.repeats else 1
        self.alpha = alpha / self.looks
        self.names = list(measured.nodes)
        self.columns: list[CasePart] = list(dict.fromkeys(c for node in measured.nodes.values() for c in node.step_s))
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
                for by_unit in node.step_s.values()
                for by_round in by_unit.values()
                for at in by_round
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
        return outliers.suspects(np.fmax(self.scores, 0) if self.what == "link" else self.scores, self.nodes)

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
        suspicions = []
        for unit, column in self.suspects:
            if column not in by_round:
                by_round[column] = np.array([self._by_round(other, column) for other in self.units])
            others = outliers.references(self.nodes[unit], controls, suspected, measured)
            rows = np.isin(self.nodes, others)
            shift = outliers.shift_of(by_round[column][unit], by_round[column][rows]) if np.any(rows) else None
            suspicions.append(Suspicion(unit, column, bool(self.scores[unit, column] > 0), shift))
        return suspicions

    def step_s(self, unit: Unit, column: CasePart) -> float:
        """Return the median over all rounds."""
        return median(self._values(unit, column).values())

    def scatter(self) -> float:
        """Return the typical standard deviation of a trial's logarithm within a node and case; NaN if it is unknown."""
        deviations = []
        for unit in self.units:
            for column in self.columns:
                values = np.log(list(self._values(unit, column).values()) or [math.nan])
                if len(values) > 1:
                    deviations.append(float(values.std(ddof=1)))
        return median(deviations) if deviations else math.nan

    def _values(self, unit: Unit, column: CasePart) -> Mapping[Round, float]:
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
