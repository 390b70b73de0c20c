"""Choose what the page compares, from the given results and options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarker.api.errors import UserError
from benchmarker.comparing import matching
from benchmarker.comparing.matching import Matching
from benchmarker.records.sides import side_of

if TYPE_CHECKING:
    from benchmarker.comparing.matching import Match
    from benchmarker.records.record import Record
    from benchmarker.records.sides import Side


def choose(
    results: Sequence[tuple[str, Sequence[Record]]], by: str | None, baseline: str | None
) -> tuple[Matching | None, str]:
    """Return what is compared, or None and the reason if it is ambiguous what to compare within one result.

    Of several results, the baseline is the first, or the one that `baseline` names; the sides have the names of their
    results. With `by`, `baseline` is a value of that axis. Without `by`, results of different work are not compared.
    Raises `UserError` if the requested comparison is not possible, or if a result is named twice.
    """
    seen: set[Path] = set()
    for name, _ in results:
        if Path(name).resolve() in seen:
            raise UserError(f"{name} is named twice; name each result once")
        seen.add(Path(name).resolve())
    if by is not None:
        every = [record for _, records in results for record in records]
        return matching.by(every, by, baseline, side_of=side_of(results)), ""
    if len(results) > 1:
        made = matching.between(first(results, baseline), lenient=True)
        if not made.matches:
            return None, "; ".join(made.notes).removeprefix("not compared: ")
        names = {record.trial_id: name for name, records in results for record in records}
        return replace(made, matches=tuple(_called(match, names) for match in made.matches)), ""
    if baseline is not None:
        raise UserError("--baseline names a value of the axis of --by, or one of several results; give one of these")
    records = results[0][1]
    try:
        return matching.within(records), ""
    except UserError as error:
        reason = str(error)
    try:
        return matching.by(records, "framework", None), ""
    except UserError:
        return None, reason


def first(results: Sequence[tuple[str, Sequence[Record]]], baseline: str | None) -> list[tuple[str, Sequence[Record]]]:
    """Return the results with the baseline first."""
    if baseline is None:
        return list(results)
    chosen = [result for result in results if Path(result[0]) == Path(baseline)]
    if not chosen:
        names = ", ".join(name for name, _ in results)
        raise UserError(f"--baseline={baseline}: no such result was given; there are: {names}")
    return [*chosen, *(result for result in results if result[0] != chosen[0][0])]


def _called(match: Match, names: Mapping[str, str]) -> Match:
    """Return the match with its sides named after their results."""

    def called(side: Side) -> Side:
        return replace(side, name=names[side.records[0].trial_id])

    return replace(match, baseline=called(match.baseline), contender=called(match.contender))
