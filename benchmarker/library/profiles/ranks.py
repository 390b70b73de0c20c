"""The view `ranks`: the ranks of a distributed program side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from benchmarker.display.profiles import notes_on
from benchmarker.display.result import Part, Text
from benchmarker.formatting import count, si
from benchmarker.library.profiles.view import Tables
from benchmarker.tables.table import NOTHING, Cell, Column, Shown, Table, number

if TYPE_CHECKING:
    from benchmarker.traces.ranks import CollectiveTime, RankTime
    from benchmarker.traces.ranks import Ranks as Compared

_ALL = 0.995
"""A smaller part of the time of communication that is compared is not all of it."""
_OF_RANKS = ("device", "step", "idle", "wall")
_OF_COLLECTIVES = ("group", "alg bw", "ranks", "waiting", "count")
"""Columns that a narrow terminal does not show, the least important first."""


class Ranks(Struct, frozen=True, kw_only=True):
    """The view `ranks` has no options."""

    def of(self, results: Sequence[Path]) -> Tables:
        """Compare the ranks, whose traces are the results or in them."""
        import pandas as pd

        from benchmarker.traces.profile_files import profiles, traces_of
        from benchmarker.traces.ranks import ranks

        opened = profiles([path for result in results for path in traces_of(result)])
        names = [str(profile.path) for profile in opened]
        compared = ranks([profile.ingested for profile in opened], names)
        values = asdict(compared)
        notes = notes_on([profile.ingested.trace for profile in opened], names)
        return Tables(frame=pd.DataFrame(values["ranks"]), values=values, printed=[*_parts(compared)], notes=notes)


def _parts(compared: Compared) -> Iterator[Part]:
    yield from _answer(compared)
    yield from _tables(compared)
    for note in compared.notes:
        yield Text(f"note: {note}", "  ")


def _tables(compared: Compared) -> Iterator[Part]:
    """Yield a line for each rank, and one for each collective."""
    yield Table.of(_RANK, [_of_rank(rank) for rank in compared.ranks], drop=_OF_RANKS)
    if compared.collectives:
        yield Text("")
        rows = [_of_collective(line) for line in compared.collectives]
        yield Table.of(_COLLECTIVE, rows, drop=_OF_COLLECTIVES, cut=["group"], ordered=True)


def _answer(compared: Compared) -> Iterator[Part]:
    """Yield which rank the others wait for, and what to know about it."""
    wall = sum(rank.wall_ns for rank in compared.ranks)
    waited = sum(rank.waiting_ns for rank in compared.ranks)
    if compared.last is None:
        yield Text("no rank waits for another in a collective that all of them have")
    else:
        worst = compared.collectives[0]
        yield Text(
            f"waiting for another rank takes {waited / max(1, wall):.1%} of the wall time; most of it for rank "
            f"{compared.last}, and most in {worst.kind} of {_size(worst)}",
            "  ",
        )
    if compared.compared_share < _ALL:
        yield Text(
            f"PARTIAL: only {compared.compared_share:.0%} of the time of communication is compared; see the notes", "  "
        )
    if compared.steps:
        steps = Counter(step.rank for step in compared.steps)
        texts = [f"{rank} ({times} of {count(len(compared.steps), 'step')})" for rank, times in steps.most_common()]
        yield Text(f"critical rank, for which the others waited longest in a step: {', '.join(texts)}", "  ")


_RANK = (
    number("rank"),
    Column("device"),
    *(number(f"{name}_s", "s") for name in ("step", "wall", "compute", "hidden", "exposed", "waiting", "idle")),
)
_COLLECTIVE = (
    Column("collective"),
    Column("bytes", levels=("size",)),
    Column("group"),
    number("ranks"),
    number("count"),
    number("shortest_s", "s"),
    number("algorithm_bytes_per_s", "B/s", "alg bw"),
    number("bus_bytes_per_s", "B/s", "bus bw"),
    number("waiting_s", "s"),
    Column("last"),
    number("last_share", only="data"),
)


def _of_rank(rank: RankTime) -> tuple[Cell, ...]:
    times = (rank.wall_ns, rank.compute_ns, rank.hidden_ns, rank.exposed_ns, rank.waiting_ns, rank.idle_ns)
    step_s = None if rank.step_ns is None else rank.step_ns / 1e9
    return (rank.rank, rank.device, step_s, *(ns / 1e9 for ns in times))


def _of_collective(line: CollectiveTime) -> tuple[Cell, ...]:
    return (
        line.kind,
        Shown(line.bytes, _size(line)),
        line.group or NOTHING,
        line.ranks,
        line.count,
        line.shortest_ns / 1e9,
        line.algorithm_bytes_per_s,
        line.bus_bytes_per_s,
        line.waiting_ns / 1e9,
        Shown(line.last, f"{line.last} ({line.last_share:.0%})"),
        line.last_share,
    )


def _size(line: CollectiveTime) -> str:
    return "unknown size" if line.bytes is None else si(line.bytes, "B")
