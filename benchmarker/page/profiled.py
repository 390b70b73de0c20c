"""What the event tables of profiled trials show: where the time goes, one step over time, and tables of ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarker.api.errors import UserError
from benchmarker.page.page_model import Figure, Listing, Section
from benchmarker.page.profiles import categories, listing
from benchmarker.page.study import Group, Study
from benchmarker.records.record import Record

if TYPE_CHECKING:
    from benchmarker.page.icicle import Side

MOST_PROFILES, MOST_TABLES = 20, 6
MOST_DRAWN = 1_500
"""Most nodes of an icicle, and rows that a time line draws one by one."""
NODES_ON_PAGE, ROWS_ON_PAGE, OPS_ON_PAGE = 6_000, 3_000, 180
"""Nodes of all icicles of a page, rows of all its time lines, and lines of all its tables of ops: each about 150 KB."""


def drawn_of(profiles: int) -> tuple[int, int]:
    """Return how many nodes an icicle may have, and how many rows a time line, on a page of so many profiles."""
    return min(MOST_DRAWN, NODES_ON_PAGE // profiles), min(MOST_DRAWN, ROWS_ON_PAGE // profiles)


Trials = list[tuple["Group", "Record"]]


def profiled(study: Study) -> tuple[list[Figure], list[Section], list[str]]:
    """Return the icicles, the sections with time lines and ops, and the event tables that could not be read.

    Of each configuration, the first profiled trial is shown. An icicle has one side, or the baseline and another side
    of the same case.
    """
    first = [(group, next((record for record in group.ok if record.trace), None)) for group in study.groups]
    every = [(group, record) for group, record in first if record]
    if not every:
        return [], [], []
    known, number = categories(study), min(len(every), MOST_PROFILES)
    icicles: list[Figure] = []
    timelines: list[Figure] = []
    tables: list[Listing] = []
    unread: list[str] = []
    shown = every[:MOST_PROFILES]
    cases = dict.fromkeys(group.case for group, _ in shown)
    for case in cases:
        trials = [each for each in shown if each[0].case == case]
        sides = _read(study, trials, unread)
        of = f"{case}: " if len(cases) > 1 and trials[0][0].side else ""
        drawn, over_time = _figures(sides, known, f"{len(icicles)}", of, number)
        icicles += drawn
        timelines += over_time
        if len(tables) < MOST_TABLES:
            tables += _tables(sides[: MOST_TABLES - len(tables)], of, OPS_ON_PAGE // min(number, MOST_TABLES))
    lead = _beyond(study, every)
    sections = [Section("step", "One step over time", lead, tuple(timelines))] if timelines else []
    about = (
        "The HLO instructions of JAX, or the aten ops of PyTorch, in the first profiled trial of each configuration. "
        "FLOP and bytes are given if the shapes in the profile allow computing them."
    )
    if len(every) > len(tables) + len(unread):
        about += (
            f" Only the first {len(tables)} of {len(every)} profiled configurations are shown; "
            "`benchmarker profile ops` shows any of them."
        )
    return icicles, [*sections, Section("ops", "Ops", (about,), tuple(tables))], unread


def _read(study: Study, trials: Trials, unread: list[str]) -> list[Side]:
    """Return the profiles of a case, one for each side that can be read."""
    from benchmarker.page.icicle import Side  # Arrow is slow to import
    from benchmarker.traces.profile_files import load

    sides = []
    for group, record in trials:
        path = study.tables.get(record.trial_id)
        if path is None:
            unread.append(f"{record.trial_id}: has a profile, but no event table next to its record")
            continue
        try:
            sides.append(Side(f"{group.side or group.case}, trial {record.trial}", group.series, load(path)))
        except UserError as error:
            unread.append(str(error))
    return sides


def _figures(
    sides: Sequence[Side], known: list[str], key: str, of: str, number: int
) -> tuple[list[Figure], list[Figure]]:
    """Return the icicles and the time lines of a case, with titles that begin with `of`.

    `number` is that of all profiles on the page.
    """
    from benchmarker.page.icicle import icicle
    from benchmarker.page.timeline import timeline

    pairs: list[tuple[Side, ...]] = [(sides[0], side) for side in sides[1:]] or [(side,) for side in sides]
    nodes, rows = drawn_of(number)
    icicles = [
        icicle(f"icicle-{key}-{at}", of + " and ".join(side.name for side in pair), pair, known, nodes)
        for at, pair in enumerate(pairs)
    ]
    named = [side._replace(name=f"{of}{side.name}") for side in sides]
    return icicles, [timeline(f"step-{key}-{at}", side, known, rows) for at, side in enumerate(named)]


def _tables(sides: Sequence[Side], of: str, most: int) -> list[Listing]:
    from benchmarker.traces.statistics import ops

    return [listing(f"{of}{side.name}", ops(side.ingested.events), most) for side in sides]


def _beyond(study: Study, every: Trials) -> tuple[str, ...]:
    """Return the sentence on the profiles that are not shown."""
    beyond = [record.trial_id for _, record in every[MOST_PROFILES:]]
    if not beyond:
        return ()
    name = next((study.tables[trial].name for trial in beyond if trial in study.tables), "TRIAL.events.parquet")
    return (
        f"Only the first {MOST_PROFILES} of {len(every)} profiled configurations are shown; "
        f"`benchmarker report {name}` shows the next one, and so on.",
    )
