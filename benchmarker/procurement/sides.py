"""The two sides of a score: which they are, what is matched, and which of their trials have no record."""

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
    """Baseline and contender by name, matched; `unrun` is theirs in this order, `astray` that of no known side."""

    names: tuple[str, str]
    made: Matching
    unrun: tuple[Sequence[Unrun], Sequence[Unrun]]
    astray: Sequence[Unrun] = ()


def of_results(results: Sequence[tuple[str, Sequence[Record], Sequence[Unrun]]]) -> Sides:
    """Two results, each with its records and with what it has no record of; the first is the baseline."""
    (one, _, missing_one), (two, _, missing_two) = results
    made = matching.between([(name, records) for name, records, _ in results])
    return Sides((one, two), made, (missing_one, missing_two))


def of_axis(
    records: Sequence[Record], unrun: Sequence[Unrun], axis: str, baseline: str | None, contender: str | None
) -> Sides:
    """Two values of an axis; raises `UserError` where it is not plain which."""
    made = matching.by(records, axis, baseline, contender)
    contenders = list(dict.fromkeys(match.contender.name for match in made.matches))
    if len(contenders) > 1:
        raise UserError(f"--by={axis} gives several contenders; name one with --contender: {', '.join(contenders)}")
    names = made.matches[0].baseline.name, contenders[0]
    found: dict[str | None, list[Unrun]] = {}
    for each in unrun:
        found.setdefault(_side_of(each, names), []).append(each)
    return Sides(names, made, (found.get(names[0], []), found.get(names[1], [])), found.get(None, []))


def _side_of(unrun: Unrun, names: Sequence[str]) -> str | None:
    """The side of a trial without a record, some other value of the axis, or None where its case does not tell."""
    axis = names[0].partition("=")[0]
    known = factors(unrun.case)
    if axis not in known:
        return None
    name = f"{axis}={text(known[axis])}"
    compiled = f"{name} compiled"  # as matching calls it where a framework is there both ways
    return compiled if unrun.case.compile and compiled in names else name
