"""The sides of a score: their names, the matches of every two, and their trials without a record.

Sides that one machine measured can be measured in turns; `advice` has the command.
"""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from types import MappingProxyType

from benchmarker.api.errors import UserError
from benchmarker.comparing import matching
from benchmarker.comparing.matching import Match, Matching
from benchmarker.formatting import count
from benchmarker.procurement.completeness import MissingTrials
from benchmarker.records.environment import environment_of
from benchmarker.records.factors import factors_of
from benchmarker.records.record import Record


def advice(matches: Sequence[Match]) -> str | None:
    """Return how to measure two sides in turns; None if they ran on several machines or have the same cases."""
    hosts = {
        record.machine.host
        for match in matches
        for side in (match.baseline, match.contender)
        for record in side.records
    }
    both = [[shlex.split(side.records[0].command) for side in (match.baseline, match.contender)] for match in matches]
    differ = [(one, two) for one, two in both if one != two]
    if len(hosts) > 1 or not differ:
        return None
    one, two = differ[0]
    common = [word for word in one if word in two]
    words = ["ab" if word == "run" else word for word in common]
    for name, own, other in (("--a", one, two), ("--b", two, one)):
        words.append(f"{name}={' '.join(word for word in own if word not in other)}")
    which = f", here the first of {count(len(matches), 'case')}" if len(matches) > 1 else ""
    return (
        f"{hosts.pop()} measured both sides: in turns, what changes on it meets both alike{which}: {shlex.join(words)}"
    )


Pair = tuple[int, int]
"""Two sides by their place in the list; the first is the baseline of the two."""


@dataclass(frozen=True, slots=True)
class Sides:
    """Two or more sides by name, of which the first is the baseline, and the matches of every two.

    `records` holds the trials of each side, also those of cases that another one lacks; `unrun` its trials without a
    record; and `astray` those of an unknown side.
    """

    names: tuple[str, ...]
    made: Mapping[Pair, Matching]
    records: tuple[Sequence[Record], ...]
    unrun: tuple[Sequence[MissingTrials], ...]
    astray: Sequence[MissingTrials] = ()


def of_results(results: Sequence[tuple[str, Sequence[Record], Sequence[MissingTrials]]]) -> Sides:
    """Return results as sides; each has its records and its trials without one. The first is the baseline.

    Raises `UserError` like `matching.between`.
    """
    if len(results) > 2:
        matching.between([result[:2] for result in results])
    names = tuple(name for name, _, _ in results)
    made = _every_pair(names, lambda one, two: matching.between([results[one][:2], results[two][:2]]))
    return Sides(names, made, tuple(own for _, own, _ in results), tuple(unrun for _, _, unrun in results))


def of_axis(
    records: Sequence[Record],
    unrun: Sequence[MissingTrials],
    axis: str,
    baseline: str | None,
    contender: str | None,
    side_of: Mapping[str, str] = MappingProxyType({}),
) -> Sides:
    """Return the values of an axis as sides, or two of them if the contender is named; `side_of` is as in `by`."""
    first = matching.by(records, axis, baseline, contender, side_of).matches
    names = tuple(dict.fromkeys(name for match in first for name in (match.baseline.name, match.contender.name)))
    axes = matching.axes_of(records, axis)
    values = {}
    of_side: dict[str, list[Record]] = {}
    for record in records:
        value = matching.value_of(axes, {**environment_of(record), **factors_of(record.case)})
        name = matching.side_name(axes, value)
        values[name] = ",".join(value)
        of_side.setdefault(name, []).append(record)
    made = _every_pair(
        names, lambda one, two: matching.by(records, axis, values[names[one]], values[names[two]], side_of)
    )
    missing: dict[str | None, list[MissingTrials]] = {}
    for lacking in unrun:
        known = factors_of(lacking.case)
        side = matching.side_name(axes, matching.value_of(axes, known)) if known.keys() >= set(axes) else None
        missing.setdefault(side, []).append(lacking)
    every = tuple(of_side[name] for name in names)
    return Sides(names, made, every, tuple(missing.get(name, []) for name in names), missing.get(None, []))


def _every_pair(names: Sequence[str], match: Callable[[int, int], Matching]) -> dict[Pair, Matching]:
    """Match every two sides, and call the sides of each match by their names; two contenders may share no case."""
    made = {}
    for one, two in combinations(range(len(names)), 2):
        try:
            matched = match(one, two)
        except UserError:
            if one == 0:
                raise
            matched = Matching(())
        made[one, two] = replace(
            matched, matches=tuple(_named(same, names[one], names[two]) for same in matched.matches)
        )
    return made


def _named(match: Match, baseline: str, contender: str) -> Match:
    return replace(
        match, baseline=replace(match.baseline, name=baseline), contender=replace(match.contender, name=contender)
    )
