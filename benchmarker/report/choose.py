"""Choose what the page compares, from the given results and options."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarker.api.errors import UserError
from benchmarker.comparing import matching
from benchmarker.comparing.matching import Matching

if TYPE_CHECKING:
    from benchmarker.comparing.matching import Side
    from benchmarker.records.record import Record


def choose(
    results: Sequence[tuple[str, Sequence[Record]]], by: str | None, baseline: str | None
) -> tuple[Matching | None, str]:
    """Return what is compared, or None and the reason if it is ambiguous what to compare within one result.

    Of several results, the baseline is the first, or the one that `baseline` names. With `by`, `baseline` is a value
    of that axis. Without `by`, different problems or modes are not compared. Raises `UserError` if the requested
    comparison is not possible, or if a result is named twice.
    """
    seen: set[Path] = set()
    for name, _ in results:
        if Path(name).resolve() in seen:
            raise UserError(f"{name} is named twice; name each result once")
        seen.add(Path(name).resolve())
    if by is not None:
        return matching.by([record for _, records in results for record in records], by, baseline), ""
    if len(results) > 1:
        return _same_work(matching.between(_first(results, baseline)))
    if baseline is not None:
        raise UserError("--baseline names a value of the axis of --by, or one of several results; give one of these")
    records = results[0][1]
    try:
        return _same_work(matching.within(records))
    except UserError as error:
        reason = str(error)
    try:
        return matching.by(records, "framework", None), ""
    except UserError:
        return None, reason


def _same_work(made: Matching) -> tuple[Matching | None, str]:
    """Return the matches whose sides do the same work, with notes on the others, or None and the reason."""
    works = [(_work(match.baseline), _work(match.contender)) for match in made.matches]
    kept = tuple(match for match, (one, two) in zip(made.matches, works, strict=True) if one == two)
    notes = tuple(dict.fromkeys(f"{one} and {two} are not the same work" for one, two in works if one != two))
    if not kept:
        return None, "; ".join(notes)
    told = (*made.notes, *(f"not compared: {note}" for note in notes))
    return dataclasses.replace(made, matches=kept, notes=told), ""


def _work(side: Side) -> str:
    case = side.records[0].case
    return f"{case.problem} ({case.mode})"


def _first(results: Sequence[tuple[str, Sequence[Record]]], baseline: str | None) -> list[tuple[str, Sequence[Record]]]:
    """Return the results with the baseline first."""
    if baseline is None:
        return list(results)
    chosen = [result for result in results if Path(result[0]) == Path(baseline)]
    if not chosen:
        names = ", ".join(name for name, _ in results)
        raise UserError(f"--baseline={baseline}: no such result was given; there are: {names}")
    return [*chosen, *(result for result in results if result not in chosen)]
