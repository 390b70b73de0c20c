"""The time that intervals cover: the wall time of a profile is what its steps and its work cover."""

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
