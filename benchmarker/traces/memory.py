"""The memory of each device over time: its peak, and what was allocated then."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from benchmarker.traces.events import MEMORY, codes
from benchmarker.traces.intervals import inherit

_ALLOCATING = re.compile(r"aten::(empty|resize|new_empty)")
"""Ops that only allocate; an allocation belongs to the op around them."""
BEFORE = "(before the profile)"
"""Stands for memory that was allocated before the profile began."""


def timeline(events: pd.DataFrame) -> pd.DataFrame:
    """Every allocation and free, in the order of time; empty if the trace has none.

    `device` is where the memory is. `size` is in bytes, negative for a free. `allocated` and `reserved` are the totals
    of the device after it. `op`, `category`, `scope`, `phase` and `step` are those of the op that did it.
    """
    rows = events[events["kind"] == "memory"].sort_values("ts_ns", kind="stable")
    allocating = np.array([bool(_ALLOCATING.match(name)) for name in events["name"].cat.categories], bool)
    doing = (events["kind"] == "op").to_numpy() & ~allocating[codes(events["name"])]
    op = inherit(events["parent_id"].to_numpy(), np.where(doing, np.arange(len(events)), -1))[rows.index]
    texts = {name: np.append(events[name].astype(object).to_numpy(), "")[op] for name in ("name", "category")}
    columns = MEMORY if len(rows) else ()
    return pd.DataFrame(
        {
            "ts_ns": rows["ts_ns"].to_numpy(),
            "device": rows["name"].astype(object).to_numpy(),
            **{name: rows[name].to_numpy().astype(np.int64) for name in columns},
            "op": texts["name"],
            "category": texts["category"],
            "scope": rows["leaf"].astype(object).to_numpy(),
            "phase": rows["phase"].astype(object).to_numpy(),
            "step": rows["step"].to_numpy(),
        }
    )


def peaks(memory: pd.DataFrame) -> pd.DataFrame:
    """One line for each device: when the most memory was allocated, and by which op, scope and step it was reached.

    `at_ns` is from the first memory event of the trace. `before` is what had been allocated before that event.
    """
    found = []
    for device, of in memory.groupby("device"):
        most, first = of.loc[of["allocated"].idxmax()], of.iloc[0]
        found.append(
            {
                "device": device,
                "peak_allocated": int(most["allocated"]),
                "peak_reserved": int(of["reserved"].max()),
                "at_ns": int(most["ts_ns"] - memory["ts_ns"].iloc[0]),
                "before": int(first["allocated"] - first["size"]),
                "allocations": int((of["size"] > 0).sum()),
                "step": None if most["step"] < 0 else int(most["step"]),
                **{name: most[name] for name in ("op", "scope", "phase")},
            }
        )
    return pd.DataFrame(found)


def at_peak(memory: pd.DataFrame, by: str) -> pd.DataFrame:
    """What was allocated at the peak of each device, by op, category, scope or phase, the most first.

    The bytes of a device add up to its peak: what the allocations of the trace do not explain was allocated before it.
    """
    found = []
    for device, of in memory.groupby("device"):
        peak = int(of["allocated"].idxmax())
        last = of.loc[:peak].drop_duplicates("address", keep="last")
        alive = last[last["size"] > 0]
        lines = alive.groupby(by)["size"].agg(["sum", "size"]).reset_index()
        lines.columns = pd.Index([by, "bytes", "allocations"])
        most = int(of.loc[peak, "allocated"])
        before = pd.DataFrame({by: [BEFORE], "bytes": [most - int(lines["bytes"].sum())], "allocations": [0]})
        lines = pd.concat([lines, before[before["bytes"] != 0]], ignore_index=True)
        lines = lines.sort_values("bytes", ascending=False, kind="stable")
        lines.insert(0, "device", device)
        found.append(lines.assign(share=lines["bytes"] / max(1, most)))
    return pd.concat(found, ignore_index=True)
