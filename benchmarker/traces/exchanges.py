"""The collectives of several ranks: which belong together, and how long each rank waited for the last to begin.

A collective ends on all ranks at about the same time. If the clocks of the ranks need not agree, only durations are
compared: the rank on which it is shortest began it last, and what it takes longer on another rank is waiting. On one
clock, a rank waits from its own begin to that of the last. What the profiler itself states of waiting comes first.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from benchmarker.api.problem import Collective
from benchmarker.formatting import count
from benchmarker.records.profile import Exchange
from benchmarker.traces.events import ON_DEVICE
from benchmarker.traces.formats.collectives import kind_of
from benchmarker.traces.intervals import COMMUNICATION
from benchmarker.traces.statistics import work

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
    named = [kind_of(text) for text in np.where(chosen["opcode"] != "", chosen["opcode"], chosen["name"])]
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
