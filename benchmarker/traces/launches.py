"""How work came to the device: delays and lengths of launch calls, and how much work was queued.

Delay, queue length and the waits of streams are defined as in Holistic Trace Analysis 0.5.0
(`get_cuda_kernel_launch_stats`, `get_queue_length_summary`, `get_idle_time_breakdown`); here they cover every call that
launched work, and the queue's median is over time, not over changes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from benchmarker.traces.intervals import Covered

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
