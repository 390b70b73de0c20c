"""The two sides of a score: their names, their matches, and their trials without a record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarker.api.errors import UserError
from benchmarker.comparing import matching
from benchmarker.records.configurations import factors, text

if TYPE_CHECKING:
    from benchmarker.comparing.matching import Matching
    from benchmarker.procurement.completeness import Unrun
    from benchmarker.records.record import Record


@dataclass(frozen=True, slots=True)
class Sides:
    """Baseline and contender by name, and their matches.

    `unrun` holds the trials without a record of baseline and contender, `astray` those of an unknown side.
    """

    names: tuple[str, str]
    made: Matching
    unrun: tuple[Sequence[Unrun], Sequence[Unrun]]
    astray: Sequence[Unrun] = ()


def of_results(results: Sequence[tuple[str, Sequence[Record], Sequence[Unrun]]]) -> Sides:
    """Return two results as sides; each has its records and its trials without one. The first is the baseline."""
    (one, _, missing_one), (two, _, missing_two) = results
    made = matching.between([(name, records) for name, records, _ in results])
    return Sides((one, two), made, (missing_one, missing_two))


def of_axis(
    records: Sequence[Record], unrun: Sequence[Unrun], axis: str, baseline: str | None, contender: str | None
) -> Sides:
    """Return two values of an axis as sides. Raises `UserError` if it is ambiguous which values."""
    made = matching.by(records, axis, baseline, contender)
    contenders = list(dict.fromkeys(match.contender.name for match in made.matches))
    if len(contenders) > 1:
        raise UserError(f"--by={axis} has several contenders; name one with --contender: {', '.join(contenders)}")
    names = made.matches[0].baseline.name, contenders[0]
    found: dict[str | None, list[Unrun]] = {}
    for each in unrun:
        found.setdefault(_side_of(each, names), []).append(each)
    return Sides(names, made, (found.get(names[0], []), found.get(names[1], [])), found.get(None, []))


def _side_of(unrun: Unrun, names: Sequence[str]) -> str | None:
    """Return the side of a trial without a record, another value of the axis, or None if its case does not show it."""
    axis = names[0].partition("=")[0]
    known = factors(unrun.case)
    if axis not in known:
        return None
    name = f"{axis}={text(known[axis])}"
    compiled = f"{name} compiled"  # the name that matching uses if a framework occurs both ways
    return compiled if unrun.case.compile and compiled in names else name
