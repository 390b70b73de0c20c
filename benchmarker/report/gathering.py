"""From records to what the page tells of: what is compared, and the verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarker import ceilings, store
from benchmarker.compare import compare
from benchmarker.metrics import deriver
from benchmarker.report.choosing import choose
from benchmarker.report.study import Study, beside, cached
from benchmarker.traces.places import EVENTS

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarker.comparison import Rules
    from benchmarker.record import Record
    from benchmarker.report.content import Words
    from benchmarker.store import Fault


def gather(
    read: Sequence[tuple[Path, Sequence[Record], Sequence[Fault]]],
    rules: Rules,
    words: Words,
    *,
    by: str | None = None,
    baseline: str | None = None,
    title: str | None = None,
) -> Study:
    """Judge the records that were read from places, each of which has at least one; raises as `choose` does."""
    places = [place for place, _, _ in read]
    groups = [(str(place), records) for place, records, _ in read]
    known = ceilings.known(places)
    derive = cached(deriver(places))
    made, unjudged = choose(groups, by, baseline)
    return Study(
        places=groups,
        faults=[*(fault for _, _, found in read for fault in found), *known.faults],
        matches=made.matches if made else (),
        family=compare(made.matches, rules, derive, made.unmatched, made.notes) if made else None,
        unjudged=unjudged,
        derive=derive,
        words=words,
        rules=rules,
        telemetry=beside(places, store.TELEMETRY),
        tables=beside(places, EVENTS),
        ceilings=known,
        axis=by,
        title=title,
    )
