"""The ranks of a distributed program, one trace of each: how each spent its time, and who waited for whom.

The clocks of ranks need not agree, so only durations are compared. A collective ends on all ranks at about the same
time; the rank on which it is shortest began it last. On every other rank, what it takes longer is waiting.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import pandas as pd

from benchmarker.api.errors import UserError
from benchmarker.formatting import count
from benchmarker.traces.attribution.nesting import inherit
from benchmarker.traces.communication import COMMUNICATION, Overlap
from benchmarker.traces.events import ON_DEVICE
from benchmarker.traces.formats.collectives import kind_of
from benchmarker.traces.ingest import Ingested
from benchmarker.traces.statistics import work

_IN_PAIRS = ("send", "recv", "send_recv", "collective_permute")
"""Not collectives of a whole group: each connects two ranks."""
_OF_GROUP = ("all_gather", "gather")
"""Collectives whose size is the data of all ranks together; the profiler states the data of each."""


@dataclass(frozen=True, slots=True)
class RankTime:
    """How the wall time of a rank (or a device of it) is divided, in ns.

    `exposed_ns` is the time in which the rank only communicated, `hidden_ns` that in which it also computed.
    `waiting_ns` is the part of its collectives, exposed or hidden, in which it waited for another rank to begin.
    `step_ns` is the median of its steps; None if the trace marks none.
    """

    rank: int
    device: str
    step_ns: float | None
    wall_ns: int
    compute_ns: int
    hidden_ns: int
    exposed_ns: int
    waiting_ns: int
    idle_ns: int


@dataclass(frozen=True, slots=True)
class Collective:
    """Collectives of one kind, group and size, over `ranks` ranks of which there is a trace; times in ns.

    `bytes` is the size as nccl-tests counts it: the data of one rank, for a gather that of all. `shortest_ns` is the
    median of the durations on the rank that began last: the time without waiting. The bandwidths divide by it;
    `bus_bytes_per_s` has nccl-tests' factor. `last` is the rank that most often began last, `last_share` how often.
    """

    kind: str
    group: str
    ranks: int
    bytes: int | None
    count: int
    shortest_ns: float
    waiting_ns: int
    algorithm_bytes_per_s: float | None
    bus_bytes_per_s: float | None
    last: int
    last_share: float


@dataclass(frozen=True, slots=True)
class Ranks:
    """Ranks in order, their collectives with the longest waiting first, and what should be known about both."""

    ranks: list[RankTime]
    collectives: list[Collective]
    notes: list[str]

    @property
    def last(self) -> int | None:
        """The rank for which the others waited longest; None if nobody waited."""
        waited: dict[int, int] = {}
        for each in self.collectives:
            waited[each.last] = waited.get(each.last, 0) + each.waiting_ns
        return max(waited, key=lambda rank: waited[rank]) if any(waited.values()) else None


def ranks(traces: Sequence[Ingested], names: Sequence[str]) -> Ranks:
    """Compare the traces of several ranks, or of several devices that one process used. Names are for errors."""
    parts = list(_parts(traces, names))
    if len(parts) < 2:
        raise UserError(f"{names[0]} is of one rank; give a trace of each rank, such as rank*.json")
    table = pd.concat([_moves(rank, each.events, rows) for rank, _, each, rows in parts], ignore_index=True)
    found, notes = _matched(table)
    waiting = found.groupby("rank")["waiting_ns"].sum()
    times = [_time(rank, device, each, rows, int(waiting.get(rank, 0))) for rank, device, each, rows in parts]
    world = max((each.trace.world_size or 0 for each in traces), default=0)
    if len(parts) < world:
        notes.insert(0, f"traces of {len(parts)} of {world} ranks: waiting for the others cannot be told")
    return Ranks(times, _collectives(found), notes)


def bus_factor(kind: str, ranks: int) -> float:
    """How many times its size a collective moves over the slowest link of a rank, by nccl-tests' PERFORMANCE.md."""
    if kind == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if kind in ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter") else 1.0


def _parts(traces: Sequence[Ingested], names: Sequence[str]) -> Iterator[tuple[int, str, Ingested, pd.DataFrame]]:
    """Yield rank, device, trace and work of each rank; the devices of a single trace are ranks too."""
    if len(traces) == 1:
        rows = work(traces[0].events)
        for rank, (device, of_device) in enumerate(rows.groupby("device", observed=True)):
            yield rank, device, traces[0], of_device
        return
    stated = [each.trace.rank for each in traces]
    known = [place if None in stated else rank or 0 for place, rank in enumerate(stated)]
    if twice := {rank for rank in known if known.count(rank) > 1}:
        both = [name for rank, name in zip(known, names, strict=True) if rank in twice][:2]
        raise UserError(f"{both[0]} and {both[1]} are traces of the same rank; give one trace of each")
    for rank, each in sorted(zip(known, traces, strict=True), key=lambda pair: pair[0]):
        rows = work(each.events)
        yield rank, " ".join(sorted(rows["device"].unique())), each, rows


def _moves(rank: int, events: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """The collectives that a rank executed, in order: kernels, or on a CPU what the profiler calls a collective."""
    chosen = rows[rows["category"] == COMMUNICATION].sort_values("ts_ns", kind="stable")
    if (stated := chosen["collective"] != "").any() and not rows["kind"].isin(ON_DEVICE).any():
        chosen = chosen[stated]
    states = np.where(events["collective"] != "", np.arange(len(events)), -1)
    source = inherit(events["parent_id"].to_numpy(), states)[chosen.index]
    origin = events.iloc[np.maximum(source, 0)].reset_index(drop=True)
    known = source >= 0
    named = [kind_of(text) for text in np.where(chosen["opcode"] != "", chosen["opcode"], chosen["name"])]
    numbers = {name: np.where(known, origin[name], -1) for name in ("group_size", "message_bytes", "collective_nr")}
    return pd.DataFrame(
        {
            "rank": rank,
            "kind": np.where(known, origin["collective"].astype(str), named),
            "group": np.where(known, origin["process_group"].astype(str), chosen["op"].astype(str)),
            **numbers,
            "dur_ns": chosen["dur_ns"].to_numpy(),
        }
    )


def _matched(table: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The collectives that every rank of a group has, with their number and the waiting; and what is not compared.

    They are matched by the profiler's number of them, otherwise by their order, if all ranks have as many; where the
    group is unknown, among those of one size.
    """
    table = table[~table["kind"].isin(_IN_PAIRS)]
    table = table.assign(size=np.where(table["group"] == "", table["message_bytes"], -1))
    matched = [table.assign(number=0, waiting_ns=0, shortest_ns=0).iloc[:0]]
    for _, alike in table.groupby(["kind", "group", "size"]):
        numbered = (alike["collective_nr"] >= 0).all() and not alike.duplicated(["rank", "collective_nr"]).any()
        order = alike.groupby("rank").cumcount()
        of_group = alike.assign(number=alike["collective_nr"] if numbered else order)
        ranks = of_group["rank"].nunique()
        everywhere = of_group.groupby("number")["rank"].transform("size") == ranks
        if ranks > 1 and (numbered or everywhere.all()):
            found = of_group[everywhere]
            shortest = found.groupby("number")["dur_ns"].transform("min")
            matched.append(found.assign(waiting_ns=found["dur_ns"] - shortest, shortest_ns=shortest))
    found = pd.concat(matched, ignore_index=True)
    lost = len(table) - len(found)
    lacking = f"{count(lost, 'collective')} not compared: not every rank of the group has a counterpart"
    return found, [lacking] if lost else []


def _time(rank: int, device: str, each: Ingested, rows: pd.DataFrame, waiting_ns: int) -> RankTime:
    overlap = Overlap.of(rows)
    wall = max(each.trace.wall_ns, overlap.either_ns)
    steps = each.trace.step_ns
    return RankTime(
        rank=rank,
        device=device,
        step_ns=median(steps) if steps else None,
        wall_ns=wall,
        compute_ns=overlap.computing_ns,
        hidden_ns=overlap.hidden_ns,
        exposed_ns=overlap.moving_ns - overlap.hidden_ns,
        waiting_ns=waiting_ns,
        idle_ns=wall - overlap.either_ns,
    )


def _collectives(found: pd.DataFrame) -> list[Collective]:
    """One line for each kind, group and size."""
    lines = []
    largest = found.groupby(["kind", "group", "size", "number"])["message_bytes"].transform("max")
    for (kind, group, message), of_line in found.assign(size=largest).groupby(["kind", "group", "size"]):
        each = of_line.groupby("number")
        ranks = int(max(of_line["group_size"].max(), of_line["rank"].nunique()))
        shortest = float(each["shortest_ns"].first().median())
        total = None if message < 0 else int(message) * (ranks if kind in _OF_GROUP else 1)
        rate = total / shortest * 1e9 if total and shortest else None
        last = of_line.loc[each["dur_ns"].idxmin(), "rank"].value_counts()
        lines.append(
            Collective(
                kind=kind,
                group=group,
                ranks=of_line["rank"].nunique(),
                bytes=total,
                count=len(each),
                shortest_ns=shortest,
                waiting_ns=int(of_line["waiting_ns"].sum()),
                algorithm_bytes_per_s=rate,
                bus_bytes_per_s=rate and rate * bus_factor(kind, ranks),
                last=int(last.index[0]),
                last_share=int(last.iloc[0]) / len(each),
            )
        )
    return sorted(lines, key=lambda line: -line.waiting_ns)
