"""How the wall time of devices divides into work and idle time, why they wait, and how work is launched.

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

The host's rule, the 30 µs, launch delays, lengths of queues and the waits of streams are those of Holistic Trace
Analysis 0.5.0 (`get_idle_time_breakdown`, `get_cuda_kernel_launch_stats`, `get_queue_length_summary`). Its `host_wait`
is `host` and `sync` here, and its `other` is the rest but `kernel_wait`. Here launches are all calls that launched
work, and the queue's median is over time, not over changes.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from benchmarker.traces.events import ON_DEVICE, codes, matching
from benchmarker.traces.intervals import COMMUNICATION, Covered, union_ns

BUSY = ("kernels", "collectives alone", "copies alone")
"""How busy time is divided: collectives and copies count only while no other kernel runs."""
_PARTS = {
    "kernel": ("kernels",),
    "host": ("host", "sync"),
    "communication": ("collectives alone", "collective"),
    "copy": ("copies alone", "copy"),
    "latency": ("kernel wait", "other stream"),
    "unknown": ("unknown",),
}
"""The states that make a step bound by something."""
_OF_IDLE = ("gaps", "longest_ns", "op", "scope", "call")


@dataclass(frozen=True, slots=True)
class Bound:
    """What most of the wall time is spent on, such as `host-bound`, and the share of each part, the largest first."""

    verdict: str
    shares: dict[str, float]


def states(events: pd.DataFrame, rows: pd.DataFrame, gaps: pd.DataFrame, by: str = "") -> pd.DataFrame:
    """The wall time of devices, divided: busy with kernels, collectives or copies, and idle by the cause of the gaps.

    `rows` are the work. `by` may be device or step. Times are summed over devices. `share` is the share of the wall
    time of the line's device or step. For idle time, `op`, `scope` and `call` are those of the work that most of it
    waited for.
    """
    lines: list[dict[str, Any]] = []
    for key in rows[by].unique().tolist() if by else [""]:
        own, idle = (each[each[by] == key] if by else each for each in (rows, gaps))
        mine = [*_busy(own), *_idle(events, idle)]
        wall = max(1, sum(line["time_ns"] for line in mine))
        lines += [{**({by: key} if by else {}), **line, "share": line["time_ns"] / wall} for line in mine]
    columns = [*([by] if by else []), "state", "cause", "time_ns", "share", *_OF_IDLE]
    made = pd.DataFrame(lines, columns=columns).astype({"gaps": "Int64", "longest_ns": "Int64"}).astype(object)
    return made.where(made.notna(), None)


def _busy(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """A line for each part of the busy time."""
    parts = dict.fromkeys(BUSY, 0)
    for _, of in rows.groupby("device", observed=True):
        begin, end = of["ts_ns"].to_numpy(), (of["ts_ns"] + of["dur_ns"]).to_numpy()
        collective, copy = (of["category"] == COMMUNICATION).to_numpy(), (of["kind"] == "copy").to_numpy()
        so_far = 0
        for name, counted in zip(BUSY, (~collective & ~copy, collective | ~copy, copy | ~copy), strict=True):
            whole = union_ns(begin[counted], end[counted])
            parts[name] += whole - so_far
            so_far = whole
    return [{"state": "busy", "cause": cause, "time_ns": ns} for cause, ns in parts.items() if ns]


def _idle(events: pd.DataFrame, gaps: pd.DataFrame) -> list[dict[str, Any]]:
    """A line for each cause, the longest time first."""
    lines: list[dict[str, Any]] = []
    for cause, each in gaps.groupby("cause"):
        lines.append(
            {
                "state": "idle",
                "cause": cause,
                "time_ns": int(each["idle_ns"].sum()),
                "gaps": len(each),
                "longest_ns": int(each["idle_ns"].max()),
                "op": _most(events["op"], each["work"], each["idle_ns"]),
                "scope": _most(events["leaf"], each["work"], each["idle_ns"]),
                "call": _most(events["name"], each["call"], each["idle_ns"]),
            }
        )
    return sorted(lines, key=lambda line: -line["time_ns"])


def _most(texts: pd.Series, rows: pd.Series, weights: pd.Series) -> str:
    """The text with the largest sum of weights."""
    known = (rows >= 0).to_numpy()
    if not known.any():
        return ""
    number = np.bincount(codes(texts)[rows[known]], weights[known])
    return str(texts.cat.categories[int(number.argmax())])


def bound(lines: pd.DataFrame) -> Bound:
    """What the wall time of some lines of `states` is mostly spent on: the largest part decides."""
    wall = max(1, lines["time_ns"].sum())
    parts = {name: lines.loc[lines["cause"].isin(causes), "time_ns"].sum() / wall for name, causes in _PARTS.items()}
    shares = {name: float(share) for name, share in sorted(parts.items(), key=lambda part: -part[1])}
    first = next(iter(shares))
    verdict = "bound by unknown waits" if first == "unknown" else f"{first}-bound"
    return Bound(verdict, shares)


def bounds(lines: pd.DataFrame, by: str) -> pd.DataFrame:
    """One line for each device or step of `states`: its wall time, what it is bound by, and the time of each part."""
    made = []
    for key, of in lines.groupby(by, sort=False):
        times = dict(zip(of["cause"], of["time_ns"], strict=True))
        line = {by: None if key == -1 else key, "bound": bound(of).verdict, "wall_ns": int(of["time_ns"].sum())}
        made.append(line | {f"{cause}_ns": int(times.get(cause, 0)) for cause in (*BUSY, *CAUSES)})
    return pd.DataFrame(made)


def bound_of(events: pd.DataFrame) -> Bound | None:
    """What a profile is bound by; None if no accelerator executed anything."""
    rows = on_device(events)
    return bound(states(events, rows, idle_gaps(events))) if len(rows) else None


KERNEL_WAIT_NS = 30_000
"""Shorter gaps are the latency between kernels: the default of Holistic Trace Analysis 0.5.0."""


def launch_rows(events: pd.DataFrame, rows: pd.DataFrame) -> np.ndarray:
    """The call that launched each kernel or copy; -1 if it is not in the trace."""
    parent = rows["parent_id"].to_numpy()
    calls = np.append((events["kind"] == "runtime").to_numpy(), False)  # the last element is for row -1
    found: np.ndarray = np.where(calls[parent], parent, -1)
    return found


def launches(events: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """The calls that launched `rows`, one line for each call and device.

    `call_ns` is how long the call took, `work_ns` the sum of the durations of what it launched, and `delay_ns` the time
    from the call's end to the begin of the first of that work: 0 if the work began earlier. `early` is whether it began
    even before the call, which is possible only if the clocks of host and device disagree.
    """
    launch = launch_rows(events, rows)
    launched = rows[launch >= 0].assign(call=launch[launch >= 0])
    found = launched.groupby(["device", "call"], observed=True).agg(ts_ns=("ts_ns", "min"), work_ns=("dur_ns", "sum"))
    found = found.reset_index()
    calls = events.loc[found["call"], ["ts_ns", "dur_ns"]].to_numpy()
    delay = found["ts_ns"].to_numpy() - calls.sum(axis=1)
    return found.assign(call_ns=calls[:, 1], delay_ns=np.maximum(delay, 0), early=found["ts_ns"] < calls[:, 0])


def launch_statistics(events: pd.DataFrame, rows: pd.DataFrame, covered: Covered) -> pd.DataFrame:
    """One line for each device: its launch calls, their delay, short work, and the queue within the time covered.

    `short` counts calls that took longer than the work they launched. The queue holds work that was launched but has
    not begun; `queue_empty` is the share of the time in which it is empty.
    """
    found = []
    by_device = launches(events, rows).groupby("device", observed=True)
    for device, calls in by_device:
        delay = calls["delay_ns"]
        found.append(
            {
                "device": device,
                "launches": len(calls),
                "delay_median_ns": float(delay.median()),
                "delay_p95_ns": float(delay.quantile(0.95)),
                "delay_max_ns": int(delay.max()),
                "short": int((calls["call_ns"] > calls["work_ns"]).sum()),
                "early": int(calls["early"].sum()),
                **_queue(events, rows[rows["device"] == device], covered),
            }
        )
    return pd.DataFrame(found)


def _queue(events: pd.DataFrame, rows: pd.DataFrame, covered: Covered) -> dict[str, Any]:
    at, length = queue_lengths(events, rows)
    inside = (at >= covered.begin) & (at <= covered.end)
    before = int(length[at < covered.begin][-1]) if (at < covered.begin).any() else 0
    at, length = np.append(covered.begin, at[inside]), np.append(before, length[inside])
    lasted = np.diff(covered.until(np.append(at, covered.end)))
    order = np.argsort(length, kind="stable")
    so_far = np.cumsum(lasted[order])
    return {
        "queue_median": int(length[order][np.searchsorted(so_far, so_far[-1] / 2)]),
        "queue_max": int(length.max()),
        "queue_empty": float(lasted[length == 0].sum() / max(1, so_far[-1])),
    }


def queue_lengths(events: pd.DataFrame, rows: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Times at which the number of launched works that have not begun changes, and the number from then on.

    Work is queued from the begin of its launch call. Work that began before its call was never queued.
    """
    launch = launch_rows(events, rows)
    begin = rows["ts_ns"].to_numpy()[launch >= 0]
    asked = np.minimum(events["ts_ns"].to_numpy()[launch[launch >= 0]], begin)
    times, place = np.unique(np.concatenate([asked, begin]), return_inverse=True)
    change = np.bincount(place[: len(asked)], minlength=len(times)) - np.bincount(
        place[len(asked) :], minlength=len(times)
    )
    return times, np.cumsum(change)


def streams(events: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """One line for each stream: its work, and the time between its work by reason, whatever other streams do.

    `host_wait_ns`: the next work was launched after the last had ended. `kernel_wait_ns`: it was queued and began
    within 30 µs. `other_ns`: anything else. `queue_max` is the most work that was queued on the stream.
    """
    found = []
    begins = events["ts_ns"].to_numpy()
    for (device, track), of in rows.groupby(["device", "track"], observed=True):
        launch = launch_rows(events, of)
        order = np.lexsort((begins[launch], of["ts_ns"]))
        begin, asked = of["ts_ns"].to_numpy()[order], begins[launch[order]][1:]
        reach = np.maximum.accumulate(begin + of["dur_ns"].to_numpy()[order])
        gap = np.maximum(begin[1:] - reach[:-1], 0)
        host = (launch[order][1:] >= 0) & (asked > reach[:-1])
        kernel = ~host & (gap < KERNEL_WAIT_NS)
        lengths = queue_lengths(events, of)[1]
        found.append(
            {
                "device": device,
                "stream": track,
                "count": len(of),
                "busy_ns": int(reach[-1] - begin[0] - gap.sum()),
                "idle_ns": int(gap.sum()),
                "host_wait_ns": int(gap[host].sum()),
                "kernel_wait_ns": int(gap[kernel].sum()),
                "other_ns": int(gap[~host & ~kernel].sum()),
                "queue_max": int(lengths.max(initial=0)),
            }
        )
    return pd.DataFrame(found)


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
    return np.flatnonzero(matching(events["name"], pattern.search) & (events["kind"] == "runtime").to_numpy())


def calls_by_thread(events: pd.DataFrame, pattern: re.Pattern[str]) -> dict[int, np.ndarray]:
    """The rows of such calls in the order of their begins, by the number of their thread."""
    rows = calls_named(events, pattern)
    rows = rows[np.argsort(events["ts_ns"].to_numpy()[rows], kind="stable")]
    track = codes(events["track"])[rows]
    return {thread: rows[track == thread] for thread in np.unique(track).tolist()}


def idle_gaps(events: pd.DataFrame) -> pd.DataFrame:
    """The idle gaps of each device, in order; together they are the idle time of the profile.

    `idle_ns` is the part of the gap within the profiled steps. `work` is the row that ends the gap and `call` the row
    of its launch call, or for `sync`, of the synchronisation call; -1 for none. `step` is that of the work.
    """
    rows = on_device(events)
    covered = Covered.of(events, rows)
    syncs = calls_by_thread(events, SYNC)
    found = [_of_device(events, each, covered, syncs) for _, each in rows.groupby("device", observed=True)]
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame()


def _of_device(
    events: pd.DataFrame, rows: pd.DataFrame, covered: Covered, syncs: Mapping[int, np.ndarray]
) -> pd.DataFrame:
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
    thread = np.where(known, codes(events["track"])[call], -1)
    sync = np.where(late, _calls_at(syncs, begins, ends, a, asked, thread), -1)
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


def _calls_at(
    calls: Mapping[int, np.ndarray],
    begins: np.ndarray,
    ends: np.ndarray,
    time: np.ndarray,
    before: np.ndarray,
    thread: np.ndarray,
) -> np.ndarray:
    """The row of the call that a thread (-1: any) was in at each time and left no later than `before`; or -1.

    `begins` and `ends` are those of all rows.
    """
    called = np.full(len(time), -1)
    for number, rows in calls.items():
        place = np.searchsorted(begins[rows], time, side="right") - 1
        row = rows[place]
        fits = (place >= 0) & (ends[row] > time) & (ends[row] <= before) & ((thread == number) | (thread < 0))
        called[fits] = row[fits]
    return called
