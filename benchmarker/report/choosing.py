"""What the page compares: chosen from the places and options that were given."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarker import matching
from benchmarker.errors import UserError

if TYPE_CHECKING:
    from benchmarker.matching import Matching
    from benchmarker.record import Record


def choose(
    places: Sequence[tuple[str, Sequence[Record]]], by: str | None, baseline: str | None
) -> tuple[Matching | None, str]:
    """What is compared; where it is not plain what to compare within one place, None and the reason.

    Of several places the first, or the one that `baseline` names, is the baseline of the others. With `by`,
    `baseline` is a value of that axis. Raises `UserError` where what was asked for cannot be compared.
    """
    if by is not None:
        return matching.by([record for _, records in places for record in records], by, baseline), ""
    if len(places) > 1:
        return matching.between(_first(places, baseline)), ""
    if baseline is not None:
        raise UserError("--baseline names a value of the axis of --by, or one of several places; give one of these")
    records = places[0][1]
    try:
        return matching.within(records), ""
    except UserError as error:
        reason = str(error)
    try:
        return matching.by(records, "framework", None), ""
    except UserError:
        return None, reason


def _first(places: Sequence[tuple[str, Sequence[Record]]], baseline: str | None) -> list[tuple[str, Sequence[Record]]]:
    """The places with the baseline before the others."""
    if baseline is None:
        return list(places)
    chosen = [place for place in places if Path(place[0]) == Path(baseline)]
    if not chosen:
        names = ", ".join(name for name, _ in places)
        raise UserError(f"--baseline={baseline}: no such place was given; there are: {names}")
    return [*chosen, *(place for place in places if place not in chosen)]
