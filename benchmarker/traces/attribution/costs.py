"""Assign FLOPs and bytes to the innermost row that does the work, so that each is counted once."""

from __future__ import annotations

import numpy as np
import pandas as pd

from benchmarker.traces.attribution.nesting import Nest, inherit
from benchmarker.traces.events import codes, grouped, words

_HEAVY = ("gemm", "convolution", "attention")
"""Categories of kernels that do the counted work of an op; the op may launch other kernels as well."""


def counted_once(events: pd.DataFrame, nested: Nest, launch: np.ndarray, on_device: np.ndarray) -> pd.DataFrame:
    """The table with each cost counted once: not in the ops around an op, and in the kernel that does the op's work.

    The description of a matrix product goes with its FLOPs. Of several kernels, the longest of a heavy category does
    the work; if there is none, the longest of all; a memory copy or set only if there is no kernel. `launch` is the
    row that launched each device row, or that was captured for it.
    """
    gemm = codes(events["gemm"])
    amounts = {name: events[name].to_numpy().copy() for name in ("flops", "bytes")}
    for values in amounts.values():
        values[_has_inner(nested, np.isfinite(values))] = np.nan
    cost = np.isfinite(amounts["flops"]) | np.isfinite(amounts["bytes"])
    if not (cost.any() and on_device.any()):
        return events.assign(gemm=_where(amounts["flops"], gemm, events), **amounts)
    rows = np.arange(len(events))
    if (cost & on_device).any():
        done = _doing(events, _instruction(events), np.flatnonzero(on_device & cost), together=True)
        other = on_device & cost & ~np.isin(rows, done)
        for values in amounts.values():
            values[other] = np.nan
    else:
        costing = inherit(nested.parent, np.where(cost, rows, -1))
        op = np.where(on_device & (launch >= 0), costing[launch], -1)
        again = np.where(events["graph"] != "", events["parent_id"], -1)  # each launch of a graph repeats its ops
        call = grouped(op, again)[0]
        done = _doing(events, call, np.flatnonzero(op >= 0), together=False)
        for values in amounts.values():
            values[done] = values[op[done]]
        gemm[done] = gemm[op[done]]
    return events.assign(gemm=_where(amounts["flops"], gemm, events), **amounts)


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
