"""How the wall time of devices divides into work and idle time, and what it is mostly bound by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from benchmarker.traces.events import codes
from benchmarker.traces.idle import CAUSES, idle_gaps, on_device
from benchmarker.traces.intervals import COMMUNICATION, union_ns

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
