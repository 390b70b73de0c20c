"""Lines through the step times of cases that differ in a size alone, as `fit` and a machine's card show them."""

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
import numpy as np

from benchmarker.api.fields import LARGEST
from benchmarker.hooks.cases import Configuration
from benchmarker.hooks.metrics import Derive
from benchmarker.records.factors import Factors
from benchmarker.records.step_times import STEP_TIME
from benchmarker.stats.line import Line, line

LEAST = 3
"""Sizes through which a line says anything."""


@dataclass(frozen=True, slots=True)
class Fit:
    """The line of some cases: what they share, with the range of their sizes, and the rounds of trials."""

    factors: Factors
    rounds: int
    line: Line


def fits(cases: Iterable[Configuration], over: str, derive: Derive) -> list[Fit]:
    """Return the line of each set of cases that have three values or more of `over` and share everything else.

    A set whose times do not grow with the size has none.
    """
    several: dict[bytes, list[Configuration]] = {}
    for case in cases:
        size = case.factors.get(over)
        if case.ok and isinstance(size, int | float) and not isinstance(size, bool) and 0 <= size < LARGEST:
            several.setdefault(msgspec.json.encode({**case.factors, over: None}), []).append(case)
    found = []
    for of in several.values():
        sizes = np.array([case.factors[over] for case in of], float)
        rounds = [*zip(*([derive(record)[STEP_TIME].value for record in case.ok] for case in of), strict=False)]
        if len(of) >= LEAST and (fitted := line(sizes, np.array(rounds, float))):
            shared = {**of[0].factors, over: f"{min(sizes):.0f}..{max(sizes):.0f}"}
            found.append(Fit(shared, len(rounds), fitted))
    return found
