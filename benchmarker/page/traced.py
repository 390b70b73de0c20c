"""The page of traces without records: where the time of each goes, and what differs between two."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from benchmarker.comparing.profiled_parts import OUTSIDE
from benchmarker.formatting import count, sentence, si
from benchmarker.page.icicle import Side, icicle, ordered
from benchmarker.page.page_model import Card, Doubt, Page, Section
from benchmarker.page.profiled import MOST_DRAWN, drawn_of
from benchmarker.page.profiles import NO_CATEGORY, listing
from benchmarker.page.timeline import timeline
from benchmarker.records.profile import Trace
from benchmarker.tables.shortening import WIDEST, apart
from benchmarker.traces.events import ON_DEVICE
from benchmarker.traces.statistics import describe, difference, ops, work
from benchmarker.traces.summary import inclusive
from benchmarker.traces.wall_time import idle_gaps

if TYPE_CHECKING:
    from benchmarker.traces.ingest import Ingested

KERNELS = ("kernel", "kernels")
MOST_CARDS = 6


def page(traces: Sequence[tuple[Path, Ingested]], title: str | None) -> Page:
    """Return the page of one or more traces; of two, the second is compared with the first."""
    known = ordered((), *(ingested for _, ingested in traces))
    sides = [Side(path.name, number, ingested) for number, (path, ingested) in enumerate(traces)]
    sections = [_section(side, known, drawn_of(len(sides))) for side in sides]
    cards = [card for side in sides[:MOST_CARDS] for card in _cards(side, len(sides) > 1)]
    if len(traces) == 2:
        section, card = _difference(sides, known)
        sections.insert(0, section)
        cards.insert(0, card)
    doubts = [
        Doubt(sentence(f"{path.name}: {text}" if len(traces) > 1 else text), f"trace{number}")
        for number, (path, ingested) in enumerate(traces)
        for text in (*ingested.trace.missing, *ingested.trace.notes)
    ]
    return Page(
        title=title or " and ".join(path.name for path, _ in traces),
        subtitle=f"{count(len(traces), 'profiler trace')} · times are those under the profiler",
        cards=tuple(cards),
        doubts=tuple(doubts),
        sections=tuple(sections),
        undoubted="Nothing is known to be missing.",
    )


def _cards(side: Side, several: bool) -> list[Card]:
    """Return which category takes most of the busy time and, of a single trace, which kernel, and how long it idles."""
    trace, events = side.ingested.trace, side.ingested.events
    rows = work(events)
    if not len(rows):
        return []
    (category, *others), (kernel, *_) = (
        describe(rows, by).itertuples(index=False) for by in (["category"], ["name", "category"])
    )
    then = ", ".join(f"{each.category or NO_CATEGORY} {each.share:.1%}" for each in others[:3])
    busy = f"{si(category.busy_ns / 1e9, 's')} of {si(trace.busy_ns / 1e9, 's')} busy"
    of = f"{side.name}: " if several else ""
    words = f"{of}{category.category or NO_CATEGORY}, {busy}."
    cards = [_card("largest category", words, category.share, f"Then {then}." if then else "")]
    if several:
        return cards
    (name,) = apart([kernel.name], WIDEST)
    took = f"{si(kernel.busy_ns / 1e9, 's')} in {count(kernel.count, 'call')}, {kernel.category or NO_CATEGORY}."
    cards.append(_card(f"longest {'kernel' if rows['kind'].isin(ON_DEVICE).any() else 'op'}", name, kernel.share, took))
    if trace.wall_ns and trace.idle_ns:
        idle = f"{si(trace.idle_ns / 1e9, 's')} without work."
        gaps = idle_gaps(events)
        causes = gaps.groupby("cause")["idle_ns"].sum().nlargest(3) if len(gaps) else {}
        told = ", ".join(f"{cause} {si(ns / 1e9, 's')}" for cause, ns in causes.items())
        share = trace.idle_ns / (trace.busy_ns + trace.idle_ns)
        cards.append(_card("idle", idle, share, f"Causes: {told}." if told else ""))
    return cards


def _comparison(sides: Sequence[Side], difference_: pd.DataFrame, steps: tuple[int, int]) -> Card:
    """Return how much longer the work of the second trace takes, and the kernel that accounts for most of it."""
    one, two = (side.ingested.trace.busy_ns / number for side, number in zip(sides, steps, strict=True))
    largest = ""
    if len(difference_):
        name, ns = difference_[["name", "difference_ns"]].iloc[0]
        largest = f"Largest difference: {apart([name], WIDEST)[0]} ({'+' if ns > 0 else ''}{si(ns / 1e9, 's')}). "
    per_step = " per step" if steps != (1, 1) else ""
    words = f"Busy time{per_step}: {si(one / 1e9, 's')} in {sides[0].name}, {si(two / 1e9, 's')} in {sides[1].name}."
    change = f"{two / one - 1:+.1%}" if one else "-"
    return Card("none", "second against first", words, change, f"{largest}One profile of each gives no verdict.")


def _card(word: str, words: str, share: float, detail: str) -> Card:
    return Card("none", word, words, f"{share:.1%}", detail)


def _headline(trace: Trace) -> str:
    whole = [each for each in trace.devices if not each.track]
    wall, busy, idle = (si(ns / 1e9, "s") for ns in (max(each.wall_ns for each in whole), trace.busy_ns, trace.idle_ns))
    devices = whole[0].device if len(whole) == 1 else f"{len(whole)} devices together"
    return f"{count(trace.steps, 'step')}; wall {wall}; {devices}: busy {busy} ({trace.busy_share:.0%}), idle {idle}"


def _section(side: Side, known: Sequence[str], most: tuple[int, int]) -> Section:
    ingested, key = side.ingested, f"trace{side.series}"
    rows = work(ingested.events)
    tables = (
        ("By category", describe(rows, ["category"]), ("category", "categories")),
        ("Kernels", describe(rows, ["name", "category"]), KERNELS),
        ("Ops", ops(ingested.events), ("op", "ops")),
        ("Scopes", _scopes(ingested), ("scope", "scopes")),
    )
    nodes, lines = most
    figures = (
        icicle(f"{key}-icicle", "Where the time goes", [side], known, nodes),
        timeline(f"{key}-step", side._replace(name="One step over time"), known, lines),
    )
    lead = (f"{_headline(ingested.trace)}.",)
    listings = (listing(name, table, what=what) for name, table, what in tables if len(table))
    return Section(key, side.name, lead, (*figures, *listings))


def _scopes(ingested: Ingested) -> pd.DataFrame:
    """The inclusive time of each scope, and the time of its own."""
    own = pd.DataFrame(
        [(each.scope, each.phase, each.root_ns) for each in ingested.scopes], columns=["scope", "phase", "root_ns"]
    )
    made = inclusive(ingested.events).merge(own, on=["scope", "phase"], how="left").fillna({"root_ns": 0})
    made["scope"] = made["scope"].replace("", OUTSIDE)
    return made.sort_values("inclusive_ns", ascending=False, kind="stable", ignore_index=True)


def _difference(sides: Sequence[Side], known: Sequence[str]) -> tuple[Section, Card]:
    before, after = (side.ingested for side in sides)
    per_step = bool(before.trace.steps and after.trace.steps)
    steps = (before.trace.steps, after.trace.steps) if per_step else (1, 1)
    table = difference(work(before.events), work(after.events), ["name", "category"], steps)
    lead = f"Busy time of each kernel{' per step' if per_step else ''} in the first trace and in the second."
    figure = icicle("difference-icicle", "Where the difference is", sides, known, MOST_DRAWN)
    section = Section("difference", "What differs", (lead,), (figure, listing("Kernels", table, what=KERNELS)))
    return section, _comparison(sides, table, steps)
