"""Why a device waits: its idle gaps within the profiled steps, and the cause of each.

A gap lasts from the end of all earlier work of the device to the begin of its next work. Let P be the work that ended
last before the gap and N the work that ends it. The first rule that holds gives the cause:

sync          the host waited in a synchronisation call when P ended, and launched N only after the call
host          the launch call of N began after P had ended: nothing was queued; or no work follows
collective    N was queued, its stream was free, and P, on another stream, is a collective
copy          the same, and P is a copy
other stream  the same, and P is another kernel
kernel wait   N was queued (or its launch is not in the trace) and began less than 30 µs after P
host          N began less than 30 µs after its launch call returned: the call itself took long
unknown       anything else

The host's rule and the 30 µs are those of Holistic Trace Analysis 0.5.0 (`get_idle_time_breakdown`), whose `host_wait`
is `host` and `sync` here, and whose `other` is the rest but `kernel_wait`.
"""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from benchmarker.traces.events import ON_DEVICE, codes
from benchmarker.traces.intervals import COMMUNICATION, Covered
from benchmarker.traces.launches import KERNEL_WAIT_NS, launch_rows

CAUSES = ("host", "sync", "kernel wait", "other stream", "copy", "collective", "unknown")
SYNC = re.compile(
    r"Synchronize|BlockHostUntilDone"
    r"|^(cuda|hip)(Memcpy|Memset)(?!.*Async)|^cuMemcpy(?!.*Async)|^(cuda|hip)Free$|^cuMemFree"
)
"""Calls in which the host waits for the device: synchronisation, blocking copies, and frees, which synchronise."""


def on_device(events: pd.DataFrame) -> pd.DataFrame:
    """The kernels and copies of all devices."""
    return events[events["kind"].isin(ON_DEVICE)]


def calls_named(events: pd.DataFrame, pattern: re.Pattern[str]) -> np.ndarray:
    """The rows of calls of the runtime in whose names a pattern is found."""
    matching = np.array([bool(pattern.search(name)) for name in events["name"].cat.categories], bool)
    return np.flatnonzero(matching[codes(events["name"])] & (events["kind"] == "runtime").to_numpy())


def idle_gaps(events: pd.DataFrame) -> pd.DataFrame:
    """The idle gaps of each device, in order; together they are the idle time of the profile.

    `idle_ns` is the part of the gap within the profiled steps. `work` is the row that ends the gap and `call` the row
    of its launch call, or for `sync`, of the synchronisation call; -1 for none. `step` is that of the work.
    """
    rows = on_device(events)
    covered = Covered.of(events, rows)
    syncs = _Syncs(events)
    found = [_of_device(events, each, covered, syncs) for _, each in rows.groupby("device", observed=True)]
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame()


def _of_device(events: pd.DataFrame, rows: pd.DataFrame, covered: Covered, syncs: _Syncs) -> pd.DataFrame:
    launch = launch_rows(events, rows)
    begins, ends = events["ts_ns"].to_numpy(), (events["ts_ns"] + events["dur_ns"]).to_numpy()
    order = np.lexsort((begins[launch], rows["ts_ns"].to_numpy()))
    row, launch = rows.index.to_numpy()[order], launch[order]
    begin, end, track = begins[row], ends[row], codes(rows["track"])[order]
    reach = np.maximum.accumulate(end)
    latest = np.maximum.accumulate(np.where(end == reach, np.arange(len(row)), 0))
    since, until = np.append(covered.begin, reach), np.append(begin, covered.end)
    idle = covered.until(until) - covered.until(np.minimum(since, until))
    gap = np.flatnonzero(idle > 0)
    ended, after = gap < len(row), np.minimum(gap, len(row) - 1)  # a gap ends with the work of its own number
    before = np.where(gap > 0, latest[gap - 1], -1)
    call = np.where(ended, launch[after], -1)
    known = call >= 0
    asked = np.where(known, begins[call], covered.end)
    returned = np.where(known, ends[call], covered.end)
    a, b = since[gap], until[gap]
    late = np.where(known, asked > a, ~ended)
    sync = np.where(late, syncs.at(a, asked, np.where(known, codes(events["track"])[call], -1)), -1)
    ready = np.maximum(returned, _stream_free(track, end)[after])
    behind = known & ~late & (before >= 0) & (track[before] != track[after]) & (ready <= a)
    of = rows.iloc[order]
    collective = (of["category"] == COMMUNICATION).to_numpy()[before]
    copy = (of["kind"] == "copy").to_numpy()[before]
    rules = {
        "sync": sync >= 0,
        "host": late,
        "collective": behind & collective,
        "copy": behind & copy,
        "other stream": behind,
        "kernel wait": b - a < KERNEL_WAIT_NS,
        "host ": known & (b - returned < KERNEL_WAIT_NS),
    }
    cause = np.select(list(rules.values()), [name.strip() for name in rules], "unknown")
    step = of["step"].to_numpy()[np.where(ended, after, len(row) - 1)]
    return pd.DataFrame(
        {
            "device": str(of["device"].iloc[0]),
            "step": step,
            "ts_ns": a,
            "end_ns": b,
            "idle_ns": idle[gap],
            "cause": cause,
            "work": np.where(ended, row[after], -1),
            "call": np.where(sync >= 0, sync, call),
        }
    )


def _stream_free(track: np.ndarray, end: np.ndarray) -> np.ndarray:
    """When the work before each on its stream had ended; rows are in the order of their begins."""
    free = np.full(len(end), np.iinfo(np.int64).min)
    for each in np.unique(track).tolist():
        of = np.flatnonzero(track == each)
        free[of[1:]] = np.maximum.accumulate(end[of])[:-1]
    return free


class _Syncs:
    """The calls in which the host waits for the device."""

    def __init__(self, events: pd.DataFrame) -> None:
        rows = calls_named(events, SYNC)
        begin = events["ts_ns"].to_numpy()[rows]
        self._rows = rows[np.argsort(begin, kind="stable")]
        self._begin = np.sort(begin)
        self._end = self._begin + events["dur_ns"].to_numpy()[self._rows]
        self._track = codes(events["track"])[self._rows]

    def at(self, time: np.ndarray, before: np.ndarray, track: np.ndarray) -> np.ndarray:
        """The row of the call that a thread (-1: any) was in at each time and left no later than `before`; or -1."""
        found = np.full(len(time), -1)
        for each in np.unique(self._track).tolist():
            own = self._track == each
            begin, end, rows = self._begin[own], self._end[own], self._rows[own]
            at = np.searchsorted(begin, time, side="right") - 1
            inside = (at >= 0) & (end[at] > time) & (end[at] <= before) & ((track == each) | (track < 0))
            found[inside] = rows[at[inside]]
        return found
