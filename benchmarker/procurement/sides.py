"""The two sides of a score: their names, their matches, and their trials without a record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarker.api.errors import UserError
from benchmarker.comparing import matching
from benchmarker.records.configurations import factors

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
    axes = matching.axes_of(records, axis)
    both = matching.compiled_and_not([factors(record.case) for record in records])
    found: dict[str | None, list[Unrun]] = {}
    for each in unrun:
        known = factors(each.case)
        name = matching.side_name(axes, matching.value_of(axes, known, both)) if known.keys() >= set(axes) else None
        found.setdefault(name, []).append(each)
    return Sides(names, made, (found.get(names[0], []), found.get(names[1], [])), found.get(None, []))
