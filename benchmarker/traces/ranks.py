"""The ranks of a distributed program: how each spent its time, and who waited for whom.

The clocks of traces of several files need not agree; the devices of one trace share a clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import pandas as pd

from benchmarker.api.errors import UserError
from benchmarker.formatting import count, si
from benchmarker.machine.vendor_peaks import limits
from benchmarker.traces.attribution.costs import POSSIBLE
from benchmarker.traces.exchanges import OF_GROUP, SAME, critical, devices, matched, moves, waited_for
from benchmarker.traces.ingest import Ingested
from benchmarker.traces.intervals import Overlap
from benchmarker.traces.statistics import work


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
    median of the shortest time of each collective without waiting. The bandwidths divide by it;
    `bus_bytes_per_s` has nccl-tests' factor; both are None if the devices' memory cannot be so fast. `last` is the rank
    that most often began last, `last_share` how often.
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
class CriticalRank:
    """The rank for which the others waited longest within a step, and how long they did, summed over them, in ns."""

    step: int
    rank: int
    waiting_ns: int


@dataclass(frozen=True, slots=True)
class Ranks:
    """Ranks in order, their collectives with the longest waiting first, and what should be known about both.

    `last` is the rank for which the others waited longest; None if nobody waited. `steps` has the critical rank of each
    step in which there is a collective that all ranks of its group have. `compared_share` is the part of the time of
    all collectives, sends and receives that is compared.
    """

    ranks: list[RankTime]
    collectives: list[Collective]
    last: int | None
    steps: list[CriticalRank]
    notes: list[str]
    compared_share: float


def ranks(traces: Sequence[Ingested], names: Sequence[str]) -> Ranks:
    """Compare the traces of several ranks, or of several devices that one process used. Names are for errors."""
    parts = list(_parts(traces, names))
    if len(parts) < 2:
        raise UserError(f"{names[0]} is of one rank; give a trace of each rank, such as rank*.json")
    table = pd.concat([moves(rank, rows) for rank, _, _, rows in parts], ignore_index=True)
    found, notes = matched(table, one_clock=len(traces) == 1)
    waiting = found.groupby("rank")["waiting_ns"].sum()
    times = [_time(rank, device, each, rows, int(waiting.get(rank, 0))) for rank, device, each, rows in parts]
    world = max((trace.trace.world_size or 0 for trace in traces), default=0)
    if len(parts) < world:
        notes.insert(0, f"traces of {len(parts)} of {world} ranks: waiting for the others is unknown")
    steps = [CriticalRank(step, rank, waited) for step, (rank, waited) in critical(found).items() if step >= 0]
    most = limits(sorted({name for trace in traces for name in trace.trace.device_names}))
    lines = _collectives(found, POSSIBLE * most.bytes_per_s)
    impossible = sum(line.algorithm_bytes_per_s is None for line in lines if line.bytes and line.shortest_ns)
    if impossible:
        peak = si(most.bytes_per_s, "B/s")
        notes.append(
            f"{count(impossible, 'line has', 'lines have')} no bandwidth: it would be above {POSSIBLE} times that of "
            f"the memory of {most.of} ({peak}), so sizes or times are not those of the collectives"
        )
    waited = waited_for(found).groupby("rank").sum()
    return Ranks(
        ranks=times,
        collectives=lines,
        last=int(waited.idxmax()) if waited.any() else None,
        steps=steps,
        notes=notes,
        compared_share=float(found["dur_ns"].sum() / table["dur_ns"].sum()) if table["dur_ns"].any() else 1.0,
    )


def bus_factor(kind: str, ranks: int) -> float:
    """How many times its size a collective moves over the slowest link of a rank, by nccl-tests' PERFORMANCE.md."""
    if kind == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if kind in ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter") else 1.0


def _parts(traces: Sequence[Ingested], names: Sequence[str]) -> Iterator[tuple[int, str, Ingested, pd.DataFrame]]:
    """Yield rank, device, trace and work of each rank; the devices of a single trace are ranks too."""
    if len(traces) == 1:
        for rank, (device, rows) in enumerate(devices(work(traces[0].events))):
            yield rank, device, traces[0], rows
        return
    stated = [trace.trace.rank for trace in traces]
    known = [place if None in stated else rank or 0 for place, rank in enumerate(stated)]
    if twice := {rank for rank in known if known.count(rank) > 1}:
        both = [name for rank, name in zip(known, names, strict=True) if rank in twice][:2]
        raise UserError(f"{both[0]} and {both[1]} are traces of the same rank; give one trace of each")
    for rank, each in sorted(zip(known, traces, strict=True), key=lambda pair: pair[0]):
        rows = work(each.events)
        yield rank, " ".join(sorted(rows["device"].unique())), each, rows


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


def _collectives(found: pd.DataFrame, most: float) -> list[Collective]:
    """One line for each kind, group and size; bandwidths above `most`, in bytes/s, are impossible."""
    lines = []
    largest = found.groupby(SAME)["message_bytes"].transform("max")
    for (kind, group, message), of_line in found.assign(size=largest).groupby(["kind", "group", "size"]):
        each = of_line.groupby("number")
        ranks = int(max(of_line["group_size"].max(), of_line["rank"].nunique()))
        shortest = float(each["exchange_ns"].first().median())
        total = None if message < 0 else int(message) * (ranks if kind in OF_GROUP else 1)
        rate = total / shortest * 1e9 if total and shortest else None
        factor = bus_factor(kind, ranks)
        rate = rate if rate and max(1, factor) * rate <= most else None
        last = of_line.loc[of_line["last"], "rank"].value_counts()
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
                bus_bytes_per_s=rate and rate * factor,
                last=int(last.index[0]),
                last_share=int(last.iloc[0]) / len(each),
            )
        )
    return sorted(lines, key=lambda line: -line.waiting_ns)
