"""The ranks of a distributed program: how each spent its time, and who waited for whom.

A collective ends on all ranks at about the same time. The clocks of traces of several files need not agree, so only
durations are compared: the rank on which a collective is shortest began it last, and what it takes longer on another
rank is waiting. The devices of one trace share a clock: a rank waits from its own begin to that of the last. What the
profiler itself states of waiting comes first.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import pandas as pd

from benchmarker.api.errors import UserError
from benchmarker.api.problem import Collective
from benchmarker.formatting import count, si
from benchmarker.machine.vendor_peaks import limits
from benchmarker.records.profile import Exchange
from benchmarker.traces.attribution.costs import POSSIBLE
from benchmarker.traces.events import ON_DEVICE
from benchmarker.traces.formats.notation import collective_kind
from benchmarker.traces.ingest import Ingested
from benchmarker.traces.intervals import COMMUNICATION, Overlap
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
class CollectiveTime:
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
    collectives: list[CollectiveTime]
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


def _collectives(found: pd.DataFrame, most: float) -> list[CollectiveTime]:
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
            CollectiveTime(
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


OF_GROUP = ("all_gather", "gather")
"""Collectives whose size is the data of all ranks together; the profiler states the data of each."""
_SENT = {"send": "send_recv", "collective_permute": "send_recv"}
"""What a device sends; that another one receives it is not counted again."""
_IN_PAIRS = ("send", "recv", "send_recv", "collective_permute")
"""Not collectives of a whole group: each connects two ranks."""
_UNEVEN = ("all_to_all", "gather", "scatter")
"""Collectives in which the data of the ranks may differ in size."""
SAME = ["kind", "group", "size", "number"]
"""Columns in which the rows of one collective are equal."""


def devices(rows: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """The rows of each device, by the numbers of the devices: `gpu:2` is before `gpu:10`."""
    found = [(str(name), of_device) for name, of_device in rows.groupby("device", observed=True)]
    return sorted(found, key=lambda each: (len(each[0]), each[0]))


def moves(rank: int, rows: pd.DataFrame) -> pd.DataFrame:
    """The collectives among a rank's work, in order: kernels, or on a CPU what the profiler calls a collective.

    `row` is the number of the row in the event table, `known` whether more than a kernel's name tells the kind.
    """
    chosen = rows[rows["category"] == COMMUNICATION].sort_values("ts_ns", kind="stable")
    if (stated := chosen["collective"] != "").any() and not rows["kind"].isin(ON_DEVICE).any():
        chosen = chosen[stated]
        chosen = chosen[~chosen.index.isin(chosen["parent_id"])]  # c10d's op around an annotation states the same
    named = [collective_kind(text) for text in np.where(chosen["opcode"] != "", chosen["opcode"], chosen["name"])]
    known = (chosen["collective"] != "").to_numpy()
    instruction = np.where(known & (chosen["opcode"] == ""), "", chosen["op"].astype(str))
    group = chosen["process_group"].astype(str).to_numpy()
    return pd.DataFrame(
        {
            "rank": rank,
            "row": chosen.index.to_numpy(),
            "step": chosen["step"].to_numpy(),
            "kind": np.where(known, chosen["collective"].astype(str), named),
            "known": known | (chosen["opcode"] != "").to_numpy(),
            "group": np.where(group == "", instruction, group),
            **{name: chosen[name].to_numpy() for name in ("group_size", "message_bytes", "collective_nr")},
            "ts_ns": chosen["ts_ns"].to_numpy(),
            "dur_ns": chosen["dur_ns"].to_numpy(),
            "stated_ns": chosen["waiting_ns"].to_numpy(),
        }
    )


def matched(table: pd.DataFrame, *, one_clock: bool) -> tuple[pd.DataFrame, list[str]]:
    """The collectives that every rank of a group has, with their number; and what is not compared.

    They are matched by the profiler's number of them, otherwise by their order, if all ranks have as many; where the
    group is unknown, among those of one size, unless sizes may differ between ranks. `waiting_ns` is how long each rank
    waited, `exchange_ns` the shortest time without waiting, and `last` whether the rank began last.
    """
    paired = table["kind"].isin(_IN_PAIRS)
    whole = table[~paired]
    sized = (whole["group"] == "") & ~whole["kind"].isin(_UNEVEN)
    whole = whole.assign(size=np.where(sized, whole["message_bytes"], -1))
    found = [whole.assign(number=0).iloc[:0]]
    for _, alike in whole.groupby(["kind", "group", "size"]):
        numbered = (alike["collective_nr"] >= 0).all() and not alike.duplicated(["rank", "collective_nr"]).any()
        order = alike.groupby("rank").cumcount()
        of_group = alike.assign(number=alike["collective_nr"] if numbered else order)
        ranks = of_group["rank"].nunique()
        everywhere = of_group.groupby("number")["rank"].transform("size") == ranks
        if ranks > 1 and (numbered or everywhere.all()):
            found.append(of_group[everywhere])
    made = _waited(pd.concat(found, ignore_index=True), one_clock)
    left_out = {
        ("collective", "collectives", "not every rank of the group has a counterpart"): len(whole) - len(made),
        ("send, receive or permutation", "sends, receives and permutations", "each connects only two ranks"): int(
            (paired & table["known"]).sum()
        ),
        (
            "kernel named SendRecv",
            "kernels named SendRecv",
            "all-to-alls are named so too, and the profile of the host does not tell which they are",
        ): int((paired & ~table["known"]).sum()),
    }
    return made, [
        f"{count(number, one, several)} not compared: {why}"
        for (one, several, why), number in left_out.items()
        if number
    ]


def _waited(found: pd.DataFrame, one_clock: bool) -> pd.DataFrame:
    if one_clock:
        ahead = found.groupby(SAME)["ts_ns"].transform("max") - found["ts_ns"]
        last, waiting = ahead == 0, np.minimum(ahead, found["dur_ns"])
    else:
        shortest = found.groupby(SAME)["dur_ns"].transform("min")
        waiting = found["dur_ns"] - shortest
        last = waiting == 0
    found = found.assign(waiting_ns=np.where(found["stated_ns"] >= 0, found["stated_ns"], waiting), last=last)
    one = ~found.sort_values("last", ascending=False, kind="stable").duplicated(SAME)  # if several began at once
    exchange = (found["dur_ns"] - found["waiting_ns"]).groupby([found[name] for name in SAME]).transform("min")
    return found.assign(exchange_ns=exchange, last=one)


def waited_for(found: pd.DataFrame) -> pd.Series:
    """How long the others waited for a rank in a step, summed over them, in ns; by step (-1: outside any) and rank."""
    by = [found[name] for name in SAME]
    last = found[found["last"]].assign(waited_ns=found["waiting_ns"].groupby(by).transform("sum"))
    return last.groupby(["step", "rank"])["waited_ns"].sum()


def critical(found: pd.DataFrame) -> dict[int, tuple[int, int]]:
    """By step, the rank for which the others waited longest, and how long they did, in ns; -1 is outside any step."""
    waited = waited_for(found)
    return {
        step: (int(waited[step].idxmax()), int(waited[step].max())) for step in waited.index.unique("step").tolist()
    }


def exchanges(events: pd.DataFrame, steps: int, expected: Sequence[Collective] | None) -> list[Exchange]:
    """The collectives of a step by kind, the most bytes first, beside those `expected`, which may be unknown.

    Several transfers of one call are one collective.
    """
    rows = work(events)
    number = len(devices(rows))
    rows = rows[(rows["collective"] != "") & (rows["collective"] != "recv") & (rows["step"] >= 0)]
    kind = rows["collective"].astype(str).replace(_SENT)
    ranks = np.where(rows["group_size"] > 0, rows["group_size"], number)
    size = rows["message_bytes"] * np.where(kind.isin(OF_GROUP), ranks, 1)
    called = (rows["kind"] == "op") & (rows["opcode"] == "") & (rows["parent_id"] >= 0)
    call = np.where(called, rows["parent_id"], rows.index)
    of = pd.DataFrame({"op": kind, "call": call, "bytes": size.where(rows["message_bytes"] >= 0)}).groupby("op")
    counts, sizes = of["call"].nunique(), of["bytes"].sum(skipna=False)
    formula = {each.op: each for each in expected or ()}
    each_step = max(1, steps * number)
    found = [
        Exchange(
            op=op,
            count=int(counts.get(op, 0)) / each_step,
            bytes=_known(float(sizes.get(op, 0)) / each_step),
            expected_count=None if expected is None else formula[op].count if op in formula else 0,
            expected_bytes=None if expected is None else formula[op].bytes if op in formula else 0,
        )
        for op in {**formula, **counts}
    ]
    return sorted(found, key=lambda each: -(each.bytes or 0))


def _known(value: float) -> float | None:
    return None if np.isnan(value) else value
