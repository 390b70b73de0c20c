"""Report failed trials, files that cannot be read, and disturbed trials."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarker.comparing.disturbances import COUNTED_S, disturbances
from benchmarker.formatting import part
from benchmarker.hooks.names import name
from benchmarker.page.page_model import Listing, Section, searchable
from benchmarker.page.study import Study
from benchmarker.procurement.completeness import REMEDY
from benchmarker.records.factors import factors_of
from benchmarker.tables.table import Cell, Column, Table

MOST_LISTED = 200


def faults(study: Study, unread: Sequence[str]) -> Section:
    """Return the section on failures, unreadable files and disturbances, or on their absence."""
    failed: list[tuple[Cell, ...]] = []
    disturbed: list[tuple[Cell, ...]] = []
    for group in study.groups:
        configuration = f"{group.case} {group.side}".strip()
        for record, found in zip(group.records, disturbances(group.records), strict=True):
            if record.error:
                error = record.error
                of = (error.kind, error.stage, error.message, record.command, record.trial_id)
                failed.append((configuration, record.trial, *of))
            if found:
                disturbed.append((configuration, record.trial, "; ".join(found.values()), record.trial_id))
    unreadable: list[tuple[Cell, ...]] = [(str(fault.path), fault.reason) for fault in study.faults]
    unreadable += [("", text) for text in unread]
    unrun: list[tuple[Cell, ...]] = [
        (name(factors_of(each.case)), each.trials, each.run_id) for each in study.planned.missing
    ]
    trial = Column("trial", numeric=True)
    parts = [
        _listing(
            "Failed trials",
            (
                Column("configuration"),
                trial,
                Column("kind"),
                Column("stage"),
                Column("message", prose=True),
                Column("repeat with", command=True),
                Column("trial id"),
            ),
            failed,
        ),
        _listing(
            "Planned trials without a record",
            (Column("case"), Column("trials", numeric=True), Column("run")),
            unrun,
            f"The run was interrupted; {REMEDY}.",
        ),
        _listing("Left out", (Column("what and why", prose=True),), [(text,) for text in study.planned.left_out]),
        _listing("Files that could not be read", (Column("file"), Column("reason", prose=True)), unreadable),
        _listing(
            "Disturbed trials",
            (Column("configuration"), trial, Column("cause", prose=True), Column("trial id")),
            disturbed,
            "Disturbed trials are still counted. A disturbance is a reason to check a result, or to repeat the trial.",
        ),
    ]
    good = [record for record in study.records if record.error is None]
    untold = sum(record.interference is None or record.interference.duration_s < COUNTED_S for record in good)
    none = [
        f"{what}."
        for what, rows in (
            ("No trial failed", failed),
            ("No planned trial lacks a record", unrun),
            ("Every file could be read", unreadable),
            ("No trial is known to have been disturbed", disturbed or untold == len(good)),
        )
        if not rows
    ]
    if untold:
        none.append(
            f"Disturbances could not be detected in {part(untold, len(good), 'trial')}: they were timed for less than "
            f"{COUNTED_S} s, or their interference counters are unavailable."
        )
    return Section(
        "faults", "Failures and disturbances", (" ".join(none),) if none else (), tuple(each for each in parts if each)
    )


def _listing(
    title: str, columns: tuple[Column, ...], rows: Sequence[tuple[Cell, ...]], caption: str = ""
) -> Listing | None:
    if not rows:
        return None
    more = len(rows) - MOST_LISTED
    rest: tuple[Cell, ...] | None = (f"and {more} more", *[None] * (len(columns) - 1)) if more > 0 else None
    return searchable(f"{title} ({len(rows)})", Table(columns, tuple(rows[:MOST_LISTED]), rest), caption)
