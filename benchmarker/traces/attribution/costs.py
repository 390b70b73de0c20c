"""Assign FLOPs and bytes to the innermost row that does the work: each is counted once, and none that is impossible."""

from collections.abc import Collection

import numpy as np
import pandas as pd

from benchmarker.formatting import count, si
from benchmarker.machine.vendor_peaks import limits
from benchmarker.traces.events import codes, grouped, words
from benchmarker.traces.intervals import Nest, inherit
from benchmarker.traces.statistics import durations_ns

_HEAVY = ("gemm", "convolution", "attention")
"""Categories of kernels that do the counted work of an op; the op may launch other kernels as well."""
_MOVING = "memory"
"""The category of instructions that a memory copy may execute."""

POSSIBLE = 1.2
"""Rates above this multiple of a vendor's peak are impossible: boost clocks are a few percent above those of peaks."""


def counted_once(events: pd.DataFrame, nested: Nest, launch: np.ndarray, on_device: np.ndarray) -> pd.DataFrame:
    """The table with each cost counted once: not in the ops around an op, and in the kernel that does the op's work.

    The description of a matrix product goes with its FLOPs. Of several kernels, the longest of a heavy category does
    the work; if there is none, the longest of all. A memory copy or set never computes: it does the work only of an
    instruction that moves memory, if there is no kernel. `launch` is the row that launched each device row, or that was
    captured for it. Costs of device rows that are of no instruction are their own.
    """
    gemm = codes(events["gemm"])
    amounts = {name: events[name].to_numpy().copy() for name in ("flops", "bytes")}
    for values in amounts.values():
        values[_has_inner(nested, np.isfinite(values))] = np.nan
    cost = np.isfinite(amounts["flops"]) | np.isfinite(amounts["bytes"])
    if not (cost.any() and on_device.any()):
        return events.assign(gemm=_where(amounts["flops"], gemm, events), **amounts)
    rows = np.arange(len(events))
    is_kernel = (events["kind"] == "kernel").to_numpy()
    if (cost & on_device).any():
        instructed = on_device & cost & (events["opcode"] != "").to_numpy()
        able = is_kernel | ((events["category"] == _MOVING).to_numpy() & ~np.isfinite(amounts["flops"]))
        done = _doing(events, _instruction(events), np.flatnonzero(instructed & able), together=True)
        other = instructed & ~np.isin(rows, done)
        for values in amounts.values():
            values[other] = np.nan
    else:
        costing = inherit(nested.parent, np.where(cost, rows, -1))
        op = np.where(on_device & (launch >= 0), costing[launch], -1)
        again = np.where(events["graph"] != "", events["parent_id"], -1)  # each launch of a graph repeats its ops
        call = grouped(op, again)[0]
        done = _doing(events, call, np.flatnonzero((op >= 0) & is_kernel), together=False)
        for values in amounts.values():
            values[done] = values[op[done]]
        gemm[done] = gemm[op[done]]
    return events.assign(gemm=_where(amounts["flops"], gemm, events), **amounts)


def without_impossible(
    events: pd.DataFrame, work: np.ndarray, device_names: Collection[str]
) -> tuple[pd.DataFrame, str]:
    """The table without costs that no device can do in the time of their rows, and a note that counts them, or empty.

    `work` are the rows that are work. Without names of the devices, the largest peaks of any device are the limit.
    """
    most, took_s = limits(device_names), durations_ns(events) / 1e9
    kept: dict[str, np.ndarray] = {}
    lost = np.zeros(len(events), bool)
    peaks = []
    for name, peak, text in (("flops", most.flop_per_s, "FLOP/s"), ("bytes", most.bytes_per_s, "B/s")):
        amounts = events[name].to_numpy()
        too_many = work & (amounts > POSSIBLE * peak * took_s)
        kept[name] = np.where(too_many, np.nan, amounts)
        lost |= too_many
        peaks += [si(peak, text)] * bool(too_many.any())
    if not peaks:
        return events, ""
    note = (
        f"{count(int(lost.sum()), 'event has', 'events have')} no FLOPs or bytes: their rate would be above "
        f"{POSSIBLE} times the peak of {most.of} ({', '.join(peaks)}), so the cost is not theirs, or their data was in "
        "a cache"
    )
    return events.assign(**kept), note


def _where(flops: np.ndarray, gemm: np.ndarray, events: pd.DataFrame) -> pd.Categorical:
    """The matrix products of the rows that have FLOPs."""
    texts = events["gemm"].cat.categories
    return words(np.where(np.isfinite(flops), gemm, len(texts)), [*texts, ""])


def _has_inner(nested: Nest, cost: np.ndarray) -> np.ndarray:
    """Which rows with a cost enclose another row with a cost."""
    outer: np.ndarray = np.zeros(len(cost), bool)
    rows = np.flatnonzero(cost)
    while len(rows):
        above = nested.parent[rows]
        reached = np.zeros(len(cost), bool)
        reached[above[above >= 0]] = True
        rows = np.flatnonzero(reached & ~outer)
        outer[rows] = True
    outer &= cost
    return outer


def _instruction(events: pd.DataFrame) -> np.ndarray:
    """Number the rows by device, program and instruction."""
    return grouped(codes(events["device"]), events["program_id"], codes(events["op"]))[0]


def _doing(events: pd.DataFrame, group: np.ndarray, rows: np.ndarray, *, together: bool) -> np.ndarray:
    """The row of each group that does the work; if `together`, all rows of the group with that kernel's name."""
    heavy = 2 * events["category"].isin(_HEAVY).to_numpy()[rows] + (events["kind"] == "kernel").to_numpy()[rows]
    table = pd.DataFrame({"group": group[rows], "heavy": heavy, "ns": events["dur_ns"].to_numpy()[rows]})
    table["name"] = codes(events["name"])[rows] if together else rows
    best = table.groupby(["group", "name"], sort=False).agg({"heavy": "max", "ns": "sum"}).reset_index()
    best = best.sort_values(["heavy", "ns"], kind="stable").drop_duplicates("group", keep="last")
    chosen = pd.MultiIndex.from_frame(table[["group", "name"]]).isin(pd.MultiIndex.from_frame(best[["group", "name"]]))
    found: np.ndarray = rows[chosen]
    return found
