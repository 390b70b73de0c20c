"""When the trials of a run were measured: their processes run one after the other, and those of a duet are one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from benchmarker.formatting import si
from benchmarker.records.consistency import CLOCK_S, SECOND_S, around_s, started_at

if TYPE_CHECKING:
    from benchmarker.records.record import Record


@dataclass(frozen=True, slots=True)
class Span:
    """When a trial ran: its start (s since 1970), its duration, and the time that its blocks took of the timed part."""

    trial_id: str
    partner: str | None
    started_s: float
    wall_s: float
    blocks_s: float
    timed_s: float | None
    around_s: float


def span(record: Record) -> Span | None:
    """Return when a trial ran; None if it was not started, or if that is not known."""
    started_s = started_at(record)
    if started_s is None or not record.harness.stages_s:
        return None
    blocks_s = sum(record.blocks.duration_ns) / 1e9 if record.blocks else 0.0
    timed_s = record.interference.duration_s if record.interference and record.error is None else None
    return Span(
        record.trial_id,
        record.design.partner,
        started_s,
        record.harness.wall_s,
        blocks_s,
        timed_s,
        around_s(record, timed_s or 0.0),
    )


def contradictions_between(spans: Iterable[Span]) -> list[tuple[str, str]]:
    """Return which trials of a run contradict others: processes run one after the other, and duets share one."""
    ordered = sorted(spans, key=lambda span: (span.started_s, span.trial_id))
    found = []
    for one, two in pairwise(ordered):
        if two.trial_id != one.partner and two.started_s - one.started_s < one.wall_s - SECOND_S:
            found.append((two.trial_id, f"it started before the trial {one.trial_id} had ended"))
    return found + _duets(ordered)


def _duets(spans: Sequence[Span]) -> list[tuple[str, str]]:
    """The blocks of both cases of a duet are within one timed part, and are nearly all of it."""
    found = []
    by_trial = {span.trial_id: span for span in spans}
    for one in spans:
        other = by_trial.get(one.partner or "")
        if other is None or one.trial_id > other.trial_id or one.timed_s is None:
            continue
        if other.partner != one.trial_id or other.timed_s != one.timed_s:
            found.append((other.trial_id, f"its partner {one.trial_id} was not timed in the same process"))
        elif not one.timed_s - one.around_s <= one.blocks_s + other.blocks_s <= one.timed_s + CLOCK_S:
            both, timed = si(one.blocks_s + other.blocks_s, "s"), si(one.timed_s, "s")
            found.append((other.trial_id, f"with its partner {one.trial_id}, its blocks take {both} of {timed}"))
    return found
