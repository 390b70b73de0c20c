"""Statistics of an event table, by name, category, scope, op, phase, or any other text column."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from benchmarker.traces.attribution.nesting import nest
from benchmarker.traces.events import ON_DEVICE, codes, grouped

QUANTILES = {"median_ns": 0.5, "p5_ns": 0.05, "p95_ns": 0.95}


def work(events: pd.DataFrame) -> pd.DataFrame:
    """The rows whose time is counted: those that an accelerator executed, or if there are none, the host's ops."""
    on_device = events["kind"].isin(ON_DEVICE)
    return events[on_device] if on_device.any() else events[events["kind"] == "op"]


def describe(rows: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """One line for each group of rows with equal values in the columns `by`, the longest busy time first.

    `total_ns` is the sum of durations, including enclosed rows; rows within another row of their group are left out.
    `self_ns` is the sum of own times and `busy_ns` the sum of shares of the device's busy time; `share` is the fraction
    of the busy time of all `rows`. Mean, median, percentiles (linear interpolation), extremes and standard deviation
    are those of the rows' own times. `flops` and `bytes` are sums over the rows that have them, NaN if none has.
    `flop_per_s` and `bytes_per_s` are these sums divided by the busy time of all rows of the line: a lower bound if
    some rows have no value.
    """
    group, labels = _groups(rows, by)
    count = len(labels)
    own = rows["self_ns"].to_numpy()
    shares = rows["busy_ns"].to_numpy()
    order = np.lexsort((own, group))
    values = own[order]
    sizes = np.bincount(group, minlength=count)
    first = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64) if count else np.empty(0, np.int64)
    total = np.bincount(group, own, count)
    mean = total / np.maximum(sizes, 1)
    made = labels.assign(
        count=sizes,
        total_ns=_sum(group, np.where(_within_own(rows, group), 0, rows["dur_ns"].to_numpy()), count),
        self_ns=_sum(group, own, count),
        busy_ns=_sum(group, shares, count),
        mean_ns=mean,
        **{name: _quantile(values, first, sizes, share) for name, share in QUANTILES.items()},
        min_ns=values[first] if count else values,
        max_ns=values[first + sizes - 1] if count else values,
        std_ns=np.sqrt(np.bincount(group, (own - mean[group]) ** 2, count) / np.maximum(sizes, 1)),
    )
    made.insert(len(by) + 4, "share", made["busy_ns"] / max(1, int(shares.sum())))
    busy_s = np.where(made["busy_ns"] > 0, made["busy_ns"], np.nan) / 1e9
    for name, rate in (("flops", "flop_per_s"), ("bytes", "bytes_per_s")):
        amounts = rows[name].to_numpy()
        known = np.isfinite(amounts)
        amount = np.bincount(group[known], amounts[known], count)
        made[name] = np.where(np.bincount(group[known], minlength=count) > 0, amount, np.nan)
        made[rate] = made[name] / busy_s
    return made.sort_values("busy_ns", ascending=False, kind="stable", ignore_index=True)


def _groups(rows: pd.DataFrame, by: Sequence[str]) -> tuple[np.ndarray, pd.DataFrame]:
    """The number of each row's group, and the values that define each group."""
    group, first = grouped(*(codes(rows[column]) for column in by), ordered=True)
    return group, rows.iloc[first][list(by)].astype(object).reset_index(drop=True)


def _within_own(rows: pd.DataFrame, group: np.ndarray) -> np.ndarray:
    """Which rows lie within another row of their group on the same thread; an accelerator's rows enclose nothing."""
    duration = rows["dur_ns"].to_numpy()
    if rows["kind"].isin(ON_DEVICE).any() or (rows["self_ns"].to_numpy() >= duration).all():
        return np.zeros(len(rows), bool)
    thread = grouped(group, codes(rows["device"]), codes(rows["track"]))[0]
    begin = rows["ts_ns"].to_numpy()
    parent: np.ndarray = nest(thread, begin, begin + duration).parent
    return parent >= 0


def _sum(group: np.ndarray, values: np.ndarray, count: int) -> np.ndarray:
    """Exact integer sums of each group."""
    found = np.zeros(count, np.int64)
    np.add.at(found, group, values)
    return found


def _quantile(values: np.ndarray, first: np.ndarray, sizes: np.ndarray, share: float) -> np.ndarray:
    """A quantile of each group of sorted values, with linear interpolation."""
    if not len(first):
        return np.empty(0)
    at = (sizes - 1) * share
    low = np.floor(at).astype(np.int64)
    high = np.minimum(low + 1, sizes - 1)
    below, above = values[first + low], values[first + high]
    found: np.ndarray = below + (above - below) * (at - low)
    return found


def ops(events: pd.DataFrame) -> pd.DataFrame:
    """Statistics of HLO instructions, or of a framework's ops.

    All have `intensity`, in FLOP/byte. Instructions also have program, opcode, scope and phase. Host ops that launched
    work on an accelerator have the busy time of that work, `device_ns`, and are sorted by it, longest first.
    """
    rows = work(events)
    hosts = events[events["kind"] == "op"]
    if (rows["opcode"] != "").any():
        found = describe(rows, ["program", "op", "opcode", "category", "leaf", "phase"]).rename(
            columns={"leaf": "scope"}
        )
    elif hosts.index.equals(rows.index):
        found = describe(rows, ["op", "category"])
    else:
        found = _launching(hosts, rows)
    return found.assign(intensity=found["flops"] / found["bytes"])


def _launching(hosts: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """Host ops, with the busy time and cost of what they launched on a device."""
    rates = ["flops", "flop_per_s", "bytes", "bytes_per_s"]
    found = describe(hosts, ["name"]).drop(columns=["busy_ns", "share", *rates])
    launched = describe(rows, ["op"]).set_index("op")
    busy = launched["busy_ns"]
    found.insert(2, "device_ns", found["name"].map(busy).fillna(0).astype(np.int64))
    found.insert(3, "share", found["device_ns"] / max(1, int(busy.sum())))
    found = found.join(launched[rates], on="name")
    return found.rename(columns={"name": "op"}).sort_values(
        "device_ns", ascending=False, kind="stable", ignore_index=True
    )
