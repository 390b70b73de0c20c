"""Intervals of time: which one encloses which, what they cover, and how a device's time divides among them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd


@dataclass(frozen=True, slots=True)
class Covered:
    """Intervals that do not touch, in order; times in ns."""

    first: np.ndarray
    last: np.ndarray

    @classmethod
    def of(cls, events: pd.DataFrame, rows: pd.DataFrame) -> Covered:
        """The time of the profiled steps and of `rows`; if there are no steps, from the first row to the last."""
        steps = events[events["kind"] == "step"]
        begin = np.concatenate([rows["ts_ns"], steps["ts_ns"]])
        until = np.maximum(rows["ts_ns"] + rows["dur_ns"], rows["end_ns"])
        end = np.concatenate([until, steps["ts_ns"] + steps["dur_ns"]])
        if not len(steps):
            return cls(begin.min(keepdims=True), end.max(keepdims=True))
        return cls.union(begin, end)

    @classmethod
    def union(cls, begin: np.ndarray, end: np.ndarray) -> Covered:
        """The time that any of some intervals covers."""
        order = np.argsort(begin, kind="stable")
        first, last = begin[order], np.maximum.accumulate(end[order])
        new = np.flatnonzero(np.append(True, first[1:] > last[:-1]))
        return cls(first[new], last[np.append(new[1:], len(last)) - 1])

    @property
    def begin(self) -> int:
        """The first time covered."""
        return int(self.first[0])

    @property
    def end(self) -> int:
        """The last time covered."""
        return int(self.last[-1])

    @property
    def wall_ns(self) -> int:
        """How much time is covered."""
        return int((self.last - self.first).sum())

    def parts(self, begin: int, end: int) -> Iterator[tuple[int, int, bool]]:
        """Divide a time into parts that are covered and parts that are not: begin, end, and whether it is covered."""
        place = int(np.searchsorted(self.last, begin, side="right"))
        while begin < end:
            if place == len(self.first) or self.first[place] >= end:
                yield begin, end, False
                return
            first, last = max(int(self.first[place]), begin), min(int(self.last[place]), end)
            if first > begin:
                yield begin, first, False
            if last > first:
                yield first, last, True
            begin, place = last, place + 1

    def until(self, times: np.ndarray) -> np.ndarray:
        """How much of the time before each time is covered, in ns."""
        total = np.append(0, np.cumsum(self.last - self.first))
        at = np.searchsorted(self.first, times, side="right")
        within = np.where(at > 0, np.maximum(self.last[at - 1] - times, 0), 0)
        found: np.ndarray = total[at] - within
        return found


_LEVELS = 128
"""Rows up to this depth are nested one whole level at a time; deeper rows are nested one by one."""


@dataclass(frozen=True, slots=True)
class Nest:
    """The row that encloses each row (-1 for none), each row's depth, and how many rows end after their parent."""

    parent: np.ndarray
    level: np.ndarray
    overlapping: int


def nest(track: np.ndarray, begin: np.ndarray, end: np.ndarray) -> Nest:
    """Nest the intervals of each track; of two equal intervals, the first encloses the second."""
    rows = len(begin)
    order = np.lexsort((-(end - begin), begin, track))
    first, last = _apart(track[order], begin[order], end[order])
    parent, level = np.full(rows, -1), np.zeros(rows, np.int32)
    left, above = np.arange(rows), np.full(rows, -1)
    for depth in range(_LEVELS):
        if not len(left):
            break
        level[left] = depth
        ends = last[left]
        top = np.ones(len(left), bool)
        top[1:] = first[left][1:] >= np.maximum.accumulate(ends)[:-1]
        heads = left[top]
        parent[heads] = above[top]
        above = heads[np.cumsum(top) - 1][~top]
        left = left[~top]
    if len(left):
        _one_by_one(left, above, first, last, parent, level)
    found, depth_of = np.full(rows, -1), np.empty(rows, np.int32)
    has = parent >= 0
    overlapping = int((last[has] > last[parent[has]]).sum())
    found[order[has]] = order[parent[has]]
    depth_of[order] = level
    return Nest(found, depth_of, overlapping)


def _apart(track: np.ndarray, begin: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Shift the times of each track past those of the track before, so that all can be nested as one track."""
    if not len(track):
        return begin, end
    number = np.cumsum(np.diff(track, prepend=track[0]) != 0)
    low, high = int(begin.min()), int(end.max())
    if (high - low + 1) * (int(number[-1]) + 1) < 1 << 62:
        offset = number * (high - low + 1) - low
        return begin + offset, end + offset
    ranks = np.unique(np.concatenate([begin, end]), return_inverse=True)[1]
    offset = number * (2 * len(begin) + 1)
    return ranks[: len(begin)] + offset, ranks[len(begin) :] + offset


def _one_by_one(
    left: np.ndarray, above: np.ndarray, first: np.ndarray, last: np.ndarray, parent: np.ndarray, level: np.ndarray
) -> None:
    """Nest the rows that lie deeper than `_LEVELS`."""
    stack: list[int] = []
    base = -1
    for row, ancestor in zip(left.tolist(), above.tolist(), strict=True):
        if ancestor != base:
            stack, base = [ancestor], ancestor
        while len(stack) > 1 and last[stack[-1]] <= first[row]:
            stack.pop()
        parent[row] = stack[-1]
        level[row] = level[stack[-1]] + 1
        stack.append(row)


def inherit(parent: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Each row's own value, or if that is -1, the value of the nearest row above it that has one."""
    found, above = own.copy(), parent.copy()
    rows = np.flatnonzero((found < 0) & (above >= 0))
    for _ in range(len(parent).bit_length()):  # each pass looks twice as far up
        if not len(rows):
            break
        at = above[rows]
        found[rows], above[rows] = found[at], above[at]
        rows = rows[(found[rows] < 0) & (above[rows] >= 0)]
    return found


def busy(
    begin: np.ndarray, end: np.ndarray, complete: np.ndarray, nested: Nest | None
) -> tuple[np.ndarray, np.ndarray]:
    """Shares of a device's busy time, in ns: each row's share while it runs, and during its asynchronous tail.

    Each moment is divided equally among the rows that are running; of the rows of one thread, only the last that began
    counts. If none is running, the moment is divided among the rows that have ended but are not `complete` yet (-1: the
    row was complete when it ended). The shares add up to the length of the union of all intervals and tails.
    """
    if not len(begin):
        return np.zeros(0), np.zeros(0)
    if nested is None:
        tops, inside = np.ones(len(begin), bool), None
    else:
        tops, inside = nested.parent < 0, nested
        end = extended(end, nested) if nested.overlapping else end
    tail = np.maximum(np.where(complete >= 0, complete, end), end)
    late = tail > end
    times = np.concatenate([begin[tops], end[tops], end[late], tail[late]])
    running = np.concatenate([np.ones(tops.sum()), -np.ones(tops.sum()), np.zeros(2 * int(late.sum()))])
    pending = np.concatenate([np.zeros(2 * tops.sum()), np.ones(late.sum()), -np.ones(late.sum())])
    order = np.argsort(times, kind="stable")
    at = times[order]
    count, waiting = np.cumsum(running[order]), np.cumsum(pending[order])
    run_rate = np.where(count > 0, 1 / np.maximum(count, 1), 0)
    wait_rate = np.where((count == 0) & (waiting > 0), 1 / np.maximum(waiting, 1), 0)
    # Times stay integers, which are exact to the ns in any epoch; only durations are divided.
    share = _until(end, at, run_rate) - _until(begin, at, run_rate)
    own = share.copy()
    if inside is not None:
        children = inside.parent >= 0
        own -= np.bincount(inside.parent[children], share[children], len(share))
    return own, _until(tail, at, wait_rate) - _until(end, at, wait_rate)


def _until(when: np.ndarray, at: np.ndarray, rate: np.ndarray) -> np.ndarray:
    """The total accumulated at each time in `when`; each time in `at` sets the rate from then on."""
    total = np.concatenate([[0.0], np.cumsum(np.diff(at) * rate[:-1])])
    place = np.searchsorted(at, when, side="right") - 1
    found: np.ndarray = total[place] + (when - at[place]) * rate[place]
    return found


def enclosed(begin: np.ndarray, end: np.ndarray, nested: Nest) -> np.ndarray:
    """How much of each row's time is spent in rows that it encloses, in ns."""
    found = np.zeros(len(begin), np.int64)
    inner = np.flatnonzero(nested.parent >= 0)
    outer = nested.parent[inner]
    until = extended(end, nested) if nested.overlapping else end
    np.add.at(found, outer, np.minimum(until[inner], end[outer]) - begin[inner])
    return found


def extended(end: np.ndarray, nested: Nest) -> np.ndarray:
    """The end of each row, moved to the latest end of the rows that it encloses if that is later."""
    end = end.copy()
    order = np.argsort(-nested.level, kind="stable")
    bounds = np.flatnonzero(np.diff(nested.level[order])) + 1
    for rows in np.split(order, bounds)[:-1]:
        np.maximum.at(end, nested.parent[rows], end[rows])
    return end


def union_ns(begin: np.ndarray, end: np.ndarray) -> int:
    """Length of the union of intervals, in ns."""
    return Covered.union(begin, end).wall_ns if len(begin) else 0


COMMUNICATION = "communication"
"""The category of collectives and of data sent from device to device."""


@dataclass(frozen=True, slots=True)
class Overlap:
    """The time in which a device communicated, in which it did other work, and in which it did either, in ns."""

    moving_ns: int
    computing_ns: int
    either_ns: int

    @classmethod
    def of(cls, rows: pd.DataFrame) -> Overlap:
        """Of the work of one device."""
        begin, end = rows["ts_ns"].to_numpy(), (rows["ts_ns"] + rows["dur_ns"]).to_numpy()
        moves = (rows["category"] == COMMUNICATION).to_numpy()
        return cls(union_ns(begin[moves], end[moves]), union_ns(begin[~moves], end[~moves]), union_ns(begin, end))

    @property
    def hidden_ns(self) -> int:
        """The time in which the device did both."""
        return self.moving_ns + self.computing_ns - self.either_ns
