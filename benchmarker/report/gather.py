"""Build the study behind a page from records: what is compared, and the verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarker.comparing.judge import compare
from benchmarker.hooks.metrics import cached, load_metrics
from benchmarker.records import ceilings, store
from benchmarker.report.choose import choose
from benchmarker.report.study import Study, beside
from benchmarker.traces.profile_files import EVENTS

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarker.comparing.results import Rules
    from benchmarker.files.atomic import Fault
    from benchmarker.records.record import Record


def gather(
    read: Sequence[tuple[Path, Sequence[Record], Sequence[Fault]]],
    rules: Rules,
    *,
    by: str | None = None,
    baseline: str | None = None,
    title: str | None = None,
) -> Study:
    """Judge the records of results, each of which has at least one record. Raises `UserError` like `choose`."""
    results = [result for result, _, _ in read]
    groups = [(str(result), records) for result, records, _ in read]
    known = ceilings.known(results)
    derive = cached(load_metrics(results))
    made, unjudged = choose(groups, by, baseline)
    return Study(
        results=groups,
        faults=[*(fault for _, _, found in read for fault in found), *known.faults],
        matches=made.matches if made else (),
        family=compare(made.matches, rules, derive, made.unmatched, made.notes, made.shared) if made else None,
        unjudged=unjudged,
        derive=derive,
        rules=rules,
        telemetry=beside(results, store.TELEMETRY),
        tables=beside(results, EVENTS),
        ceilings=known,
        axis=by,
        title=title,
    )
