"""The page of traces without records: where the time of each goes, and what differs between two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from benchmarker.formatting import count, si
from benchmarker.page.icicle import Side, icicle, ordered
from benchmarker.page.page_model import Doubt, Page, Section
from benchmarker.page.profiled import MOST_DRAWN, drawn_of
from benchmarker.page.profiles import listing
from benchmarker.page.timeline import timeline
from benchmarker.traces.statistics import describe, difference, ops, work
from benchmarker.traces.summary import inclusive

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarker.records.profile import Trace
    from benchmarker.traces.ingest import Ingested


def page(traces: Sequence[tuple[Path, Ingested]], title: str | None) -> Page:
    """Return the page of one or more traces; of two, the second is compared with the first."""
    known = ordered((), *(ingested for _, ingested in traces))
    sides = [Side(path.name, number, ingested) for number, (path, ingested) in enumerate(traces)]
    sections = [_section(side, known, drawn_of(len(sides))) for side in sides]
    if len(traces) == 2:
        sections.insert(0, _difference(sides, known))
    doubts = [
        Doubt(f"{path.name}: {text}", f"trace{number}")
        for number, (path, ingested) in enumerate(traces)
        for text in (*ingested.trace.missing, *ingested.trace.notes)
    ]
    return Page(
        title=title or " and ".join(path.name for path, _ in traces),
        subtitle=f"{count(len(traces), 'profiler trace')} · times are those under the profiler",
        cards=(),
        doubts=tuple(doubts),
        sections=tuple(sections),
        undoubted="Nothing is known to be missing.",
    )


def _headline(trace: Trace) -> str:
    whole = [each for each in trace.devices if not each.track]
    wall, busy, idle = (si(ns / 1e9, "s") for ns in (max(each.wall_ns for each in whole), trace.busy_ns, trace.idle_ns))
    devices = whole[0].device if len(whole) == 1 else f"{len(whole)} devices together"
    return f"{count(trace.steps, 'step')}; wall {wall}; {devices}: busy {busy} ({trace.busy_share:.0%}), idle {idle}"


def _section(side: Side, known: Sequence[str], most: tuple[int, int]) -> Section:
    ingested, key = side.ingested, f"trace{side.series}"
    rows = work(ingested.events)
    tables = {
        "By category": describe(rows, ["category"]),
        "Kernels": describe(rows, ["name", "category"]),
        "Ops": ops(ingested.events),
        "Scopes": _scopes(ingested),
    }
    nodes, lines = most
    figures = (
        icicle(f"{key}-icicle", "Where the time goes", [side], known, nodes),
        timeline(f"{key}-step", side._replace(name="One step over time"), known, lines),
    )
    lead = (f"{_headline(ingested.trace)}.",)
    listings = (listing(name, table) for name, table in tables.items() if len(table))
    return Section(key, side.name, lead, (*figures, *listings))


def _scopes(ingested: Ingested) -> pd.DataFrame:
    """The inclusive time of each scope, and the time of its own."""
    own = pd.DataFrame(
        [(each.scope, each.phase, each.root_ns) for each in ingested.scopes], columns=["scope", "phase", "root_ns"]
    )
    made = inclusive(ingested.events).merge(own, on=["scope", "phase"], how="left").fillna({"root_ns": 0})
    return made.sort_values("inclusive_ns", ascending=False, kind="stable", ignore_index=True)


def _difference(sides: Sequence[Side], known: Sequence[str]) -> Section:
    before, after = (side.ingested for side in sides)
    per_step = bool(before.trace.steps and after.trace.steps)
    steps = (before.trace.steps, after.trace.steps) if per_step else (1, 1)
    table = difference(work(before.events), work(after.events), ["name", "category"], steps)
    lead = f"Busy time of each kernel{' per step' if per_step else ''} in the first trace and in the second. "
    lead += "One profile of each gives no verdict."
    figure = icicle("difference-icicle", "Where the difference is", sides, known, MOST_DRAWN)
    return Section("difference", "What differs", (lead,), (figure, listing("Kernels", table)))
