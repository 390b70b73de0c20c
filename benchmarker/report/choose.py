"""What the page compares: chosen from the results and options that were given."""

from __future__ import annotations

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
    """What is compared; where it is not plain what to compare within one result, None and the reason.

    Of several results the first, or the one that `baseline` names, is the baseline of the others. With `by`,
    `baseline` is a value of that axis; else different problems or modes are not compared. Raises `UserError` where
    what was asked for cannot be compared, or a result is named twice.
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
    """The matches whose sides do the same work, with a note on the others; None and the reason where there are none."""
    works = [(_work(match.baseline), _work(match.contender)) for match in made.matches]
    kept = tuple(match for match, (one, two) in zip(made.matches, works, strict=True) if one == two)
    notes = tuple(dict.fromkeys(f"not the same work: {one} against {two}" for one, two in works if one != two))
    if not kept:
        return None, "; ".join(notes)
    return Matching(kept, made.unmatched, (*made.notes, *(f"not compared, for it is {note}" for note in notes))), ""


def _work(side: Side) -> str:
    case = side.records[0].case
    return f"{case.problem} ({case.mode})"


def _first(results: Sequence[tuple[str, Sequence[Record]]], baseline: str | None) -> list[tuple[str, Sequence[Record]]]:
    """The results with the baseline before the others."""
    if baseline is None:
        return list(results)
    chosen = [result for result in results if Path(result[0]) == Path(baseline)]
    if not chosen:
        names = ", ".join(name for name, _ in results)
        raise UserError(f"--baseline={baseline}: no such result was given; there are: {names}")
    return [*chosen, *(result for result in results if result not in chosen)]
