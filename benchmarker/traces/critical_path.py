"""The critical path of a step: the chain of work, launches and waits that determines when the step ends.

The path is followed backwards from the end of the step, or of its last work on a device if that is later, to the begin
of the step, or the end of the path of the step before if that is later:

- Work on a device waited for the last of: the begin of its launch call; the end of the work before it on its stream;
  the end of work on another stream, if between the launches of these two a call made a stream wait for an event, or if
  the work was ready for 30 µs, and began within 30 µs after that end.
- From a launch call, the path continues on the host's thread, back to the last call in which that thread waited for the
  device. Such a call waited for the work that ended last before it returned.
- While the host is in no op and no call, it may wait for a busy device without a call, or work. It waited if it did
  nothing for 30 µs and more until all work had ended, and went on less than 30 µs, or a tenth of that time, after that;
  otherwise it is unknown what it did.
- The path ends where it reaches work of an earlier step.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
import pandas as pd

from benchmarker.traces.events import codes, texts_of
from benchmarker.traces.intervals import Covered, nest
from benchmarker.traces.wall_time import KERNEL_WAIT_NS, SYNC, calls_by_thread, calls_named, launch_rows, on_device

_WAIT_EVENT = re.compile(r"StreamWaitEvent")
_QUERY = re.compile(r"(Event|Stream)Query")
"""Calls in which the host asks whether work has ended, as one that waits does again and again."""
_TENTH = 10
"""A wait without a call ends late, by up to one part in so many: other code runs before the next op."""
_NEVER = np.iinfo(np.int64).min
KINDS = ("host", "launch delay", "kernel", "copy", "stream wait", "event wait", "sync", "unknown")
"""What a segment of the path is: the host working; from the begin of a launch call to that of its work; work on the
device; from the end of earlier work to the begin of the next, on its stream or another; the host returning from a wait;
before work whose launch and predecessor are not in the trace, or the host in no op and no call while a device worked.
"""


class Segment(NamedTuple):
    """A part of the path, its times in ns, and the row that it is about; -1 for none."""

    step: int
    kind: str
    row: int
    begin_ns: int
    end_ns: int


def critical_path(events: pd.DataFrame, step: int | None = None) -> pd.DataFrame:
    """The segments of the paths of all steps, or of one; without steps, of the whole profile.

    The segments of a step follow each other without gaps, the earliest first; those of different steps do not overlap.
    `time_ns` is the part of a segment within the wall time of the profile. `name`, `op` and `scope` are those of its
    row, and `category` too if it is work. The table is empty if no accelerator executed anything.
    """
    rows = on_device(events)
    segments: list[Segment] = []
    if len(rows):
        walk = _Walk(events, rows)
        ended = _NEVER
        for number, thread, begin, end in _windows(events, rows):
            work, last = walk.last_work(number, end)
            if step in (None, number):
                segments += walk.path(number, thread, max(begin, ended), last, work)
            ended = max(ended, last)
    made = pd.DataFrame(segments, columns=Segment._fields)
    row = made["row"].to_numpy().astype(np.int64)
    for column, source in {"name": "name", "op": "op", "scope": "leaf", "category": "category"}.items():
        made[column] = texts_of(events[source], row)
    made.loc[~made["kind"].isin(["kernel", "copy"]), "category"] = ""
    covered = Covered.of(events, rows) if segments else None
    since, until = (made[name].to_numpy().astype(np.int64) for name in ("begin_ns", "end_ns"))
    return made.assign(time_ns=covered.until(until) - covered.until(since) if covered else until - since)


def _windows(events: pd.DataFrame, rows: pd.DataFrame) -> Iterator[tuple[int, int, int, int]]:
    """Number, thread, begin and end of each step; if there are none, those of the whole profile."""
    steps = events[events["kind"] == "step"].drop_duplicates("step").sort_values("ts_ns", kind="stable")
    if not len(steps):
        covered = Covered.of(events, rows)
        yield -1, -1, covered.begin, covered.end
    for number, thread, begin, lasted in zip(
        steps["step"].tolist(), codes(steps["track"]).tolist(), steps["ts_ns"], steps["dur_ns"], strict=True
    ):
        yield number, thread, int(begin), int(begin + lasted)


class _Walk:
    """What is needed to follow the path backwards; rows are numbers of rows of the event table."""

    def __init__(self, events: pd.DataFrame, rows: pd.DataFrame) -> None:
        self.begin = events["ts_ns"].to_numpy()
        self.end = self.begin + events["dur_ns"].to_numpy()
        self.track = codes(events["track"])
        self.step = events["step"].to_numpy()
        self.is_copy = (events["kind"] == "copy").to_numpy()
        self.launch = np.full(len(events), -1)
        self.launch[rows.index] = launch_rows(events, rows)
        self.stream = np.full(len(events), -1)
        self.stream[rows.index] = rows.groupby(["device", "track"], observed=True).ngroup()
        self.before = self._earlier(rows.index.to_numpy())
        self.by_end = rows.index.to_numpy()[np.argsort(self.end[rows.index], kind="stable")]
        self.ends = self.end[self.by_end]
        self.busy = Covered.union(self.begin[rows.index], self.end[rows.index])
        self.syncs = calls_by_thread(events, SYNC)
        self.event_waits = np.sort(self.begin[calls_named(events, _WAIT_EVENT)])
        self.hosts = _Hosts(events)

    def _earlier(self, rows: np.ndarray) -> np.ndarray:
        """The work before each on its stream."""
        before = np.full(len(self.begin), -1)
        order = rows[np.lexsort((self.end[rows], self.begin[rows], self.stream[rows]))]
        same = self.stream[order[1:]] == self.stream[order[:-1]]
        before[order[1:][same]] = order[:-1][same]
        return before

    def last_work(self, step: int, end: int) -> tuple[int, int]:
        """The work of a step that ends last, if that is not before the step's end, or -1; and the end of the later."""
        own = self.by_end[self.step[self.by_end] == step]
        work = int(own[-1]) if len(own) and self.end[own[-1]] >= end else -1
        return work, int(self.end[work]) if work >= 0 else end

    def path(self, step: int, thread: int, begin: int, end: int, work: int) -> list[Segment]:
        """The path of a step within a time, from its begin; `work` is what ends last, -1 if that is the host."""
        found: list[Segment] = []
        seen: set[int] = set()
        at = end

        def go_to(time: int, kind: str, row: int) -> int:
            time = max(min(time, at), begin)
            if time < at:
                found.append(Segment(step, kind, row, time, at))
            return time

        while at > begin:
            if work >= 0:
                seen.add(work)
                at = go_to(int(self.begin[work]), "copy" if self.is_copy[work] else "kernel", work)
                kind, blocker, time = self._blocker(work)
                at = go_to(time, kind, self.launch[work] if kind == "launch delay" else work)
                if kind == "launch delay":
                    thread, work = int(self.track[blocker]), -1
                elif blocker < 0 or blocker in seen:
                    at = go_to(begin, "unknown", work)
                elif 0 <= self.step[blocker] < step:
                    break
                else:
                    work = blocker
                continue
            sync = self._sync(thread, at)
            returned = max(min(int(self.end[sync]), at), begin) if sync >= 0 else begin
            segments, work = self._host(step, thread, returned, at, seen)
            found += segments
            if work >= 0:
                at = int(self.end[work])
                if 0 <= self.step[work] < step:
                    break
                continue
            at = returned
            if sync < 0:
                break
            work = self._ended(int(self.begin[sync]), returned)
            if work < 0 or work in seen:
                at, work = go_to(int(self.begin[sync]), "sync", sync), -1
            else:
                at = go_to(int(self.end[work]), "sync", sync)
        return sorted(found, key=lambda segment: segment.begin_ns)

    def _host(self, step: int, thread: int, begin: int, end: int, seen: set[int]) -> tuple[list[Segment], int]:
        """What the host did, back to where it waited for work without a call, and that work; -1 if it did not."""
        found: list[Segment] = []
        stretches = [
            (is_working, list(pieces))
            for is_working, pieces in groupby(self.hosts.pieces(thread, begin, end), key=lambda piece: piece.is_working)
        ]
        for is_working, pieces in reversed(stretches):
            if is_working:
                found += [Segment(step, "host", piece.row, piece.begin, piece.end) for piece in pieces]
                continue
            work = self._awaited(pieces[0].begin, pieces[-1].end)
            if work >= 0 and work not in seen:
                ended, end = int(self.end[work]), pieces[-1].end
                if ended < end:
                    found.append(Segment(step, "sync" if end - ended < KERNEL_WAIT_NS else "host", -1, ended, end))
                return found, work
            for piece in pieces:
                found += [
                    Segment(step, "unknown" if is_busy else "host", piece.row, since, until)
                    for since, until, is_busy in self.busy.parts(piece.begin, piece.end)
                ]
        return found, -1

    def _awaited(self, begin: int, end: int) -> int:
        """The work that the host waited for in a time in which it was in no op and no call; -1 if that is not clear."""
        place = int(np.searchsorted(self.busy.first, end)) - 1
        ended = int(self.busy.last[place]) if place >= 0 else _NEVER
        late = max(KERNEL_WAIT_NS, (ended - begin) // _TENTH)
        if not begin + KERNEL_WAIT_NS <= ended <= end < ended + late:
            return -1
        since, until = self.busy.until(np.array([begin, ended]))
        return self._ended(ended - 1, ended) if 2 * (until - since) > ended - begin else -1

    def _sync(self, thread: int, time: int) -> int:
        """The last call before a time in which a thread waited for the device."""
        own = self.syncs.get(thread)
        if own is None:
            return -1
        at = int(np.searchsorted(self.begin[own], time)) - 1
        return int(own[at]) if at >= 0 else -1

    def _ended(self, after: int, until: int) -> int:
        """The work that ended last within a time."""
        at = int(np.searchsorted(self.ends, until, side="right")) - 1
        return int(self.by_end[at]) if at >= 0 and self.ends[at] > after else -1

    def _blocker(self, work: int) -> tuple[str, int, int]:
        """What work waited for: the kind of wait, the row, and the time when it was no longer waited for."""
        begin, launch, before = int(self.begin[work]), int(self.launch[work]), int(self.before[work])
        asked = int(self.begin[launch]) if launch >= 0 else _NEVER
        freed = int(self.end[before]) if before >= 0 else _NEVER
        other = self._other_stream(work, max(asked, freed))
        if other >= 0:
            return "event wait", other, int(self.end[other])
        if launch >= 0 and (asked > freed or before < 0):
            return "launch delay", launch, asked
        return "stream wait", before, freed if before >= 0 else begin

    def _other_stream(self, work: int, ready: int) -> int:
        """The work on another stream that a row waited for after it was ready; -1 if there is no sign of it."""
        begin, before = int(self.begin[work]), int(self.before[work])
        asked = int(self.begin[self.launch[work]]) if self.launch[work] >= 0 else begin
        at = int(np.searchsorted(self.event_waits, asked)) - 1
        waited = int(self.event_waits[at]) if at >= 0 else _NEVER
        earlier = int(self.begin[self.launch[before]]) if before >= 0 and self.launch[before] >= 0 else _NEVER
        by_event = waited > earlier
        if not by_event and begin - ready < KERNEL_WAIT_NS:
            return -1
        place = int(np.searchsorted(self.ends, begin, side="right")) - 1
        while place >= 0 and self.ends[place] > ready:
            row = int(self.by_end[place])
            launched = int(self.begin[self.launch[row]]) if self.launch[row] >= 0 else _NEVER
            if self.stream[row] != self.stream[work] and launched < (waited if by_event else asked):
                return row if by_event or begin - self.ends[place] < KERNEL_WAIT_NS else -1
            place -= 1
        return -1


class _Piece(NamedTuple):
    """A part of a thread's time, in ns: the innermost row, -1 for none, and whether it is an op or a call."""

    row: int
    begin: int
    end: int
    is_working: bool


class _Hosts:
    """The innermost row of each thread of the host at each time."""

    def __init__(self, events: pd.DataFrame) -> None:
        kinds = events["kind"]
        self._working = kinds.isin(["op", "runtime"]).to_numpy().copy()
        self._working[calls_named(events, _QUERY)] = False
        rows = np.flatnonzero((kinds.isin(["op", "runtime", "scope"]) & (events["dur_ns"] > 0)).to_numpy())
        track = codes(events["track"])[rows]
        begin = events["ts_ns"].to_numpy()[rows]
        end = begin + events["dur_ns"].to_numpy()[rows]
        nested = nest(track, begin, end)
        parent = np.where(nested.parent >= 0, rows[nested.parent], -1)
        times = np.concatenate([begin, end])
        then = np.concatenate([rows, parent])
        order = np.lexsort((np.concatenate([nested.level, -nested.level]), np.arange(len(times)) < len(rows), times))
        thread = np.concatenate([track, track])[order]
        self._of = {
            each: (times[order][thread == each], then[order][thread == each]) for each in np.unique(track).tolist()
        }

    def pieces(self, thread: int, begin: int, end: int) -> list[_Piece]:
        """The host's time by the innermost op or call; where the thread has none, by those of another that has."""
        found = []
        for piece in self._of_thread(thread, begin, end):
            others = (
                [list(self._of_thread(each, piece.begin, piece.end)) for each in self._of if each != thread]
                if not piece.is_working
                else []
            )
            best = max(others, key=_worked_ns, default=[])
            found += best if _worked_ns(best) else [piece]
        return found

    def _of_thread(self, thread: int, begin: int, end: int) -> Iterator[_Piece]:
        """The innermost row, begin and end of each part of a time; the row is -1 where there is none."""
        times, rows = self._of.get(thread, (np.empty(0, np.int64), np.empty(0, np.int64)))
        at = int(np.searchsorted(times, begin, side="right"))
        until = int(np.searchsorted(times, end, side="left"))
        edges = [begin, *times[at:until].tolist(), end]
        inside = [int(rows[at - 1]) if at else -1, *rows[at:until].tolist()]
        for row, first, last in zip(inside, edges, edges[1:], strict=False):
            if last > first:
                yield _Piece(row, first, last, row >= 0 and bool(self._working[row]))


def _worked_ns(pieces: Sequence[_Piece]) -> int:
    return sum(piece.end - piece.begin for piece in pieces if piece.is_working)


def summed(path: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """One line for each group of segments that are equal in the columns `by`, the longest time first.

    `share` is the part of the whole path. Of `op` and `scope`, a line has those of its longest segment.
    """
    longest = path.sort_values("time_ns", ascending=False, kind="stable")
    groups = longest.groupby(list(by), sort=False)
    made = groups.agg(
        time_ns=("time_ns", "sum"),
        count=("time_ns", "size"),
        longest_ns=("time_ns", "max"),
        op=("op", "first"),
        scope=("scope", "first"),
    ).reset_index()
    made.insert(len(by) + 1, "share", made["time_ns"] / max(1, path["time_ns"].sum()))
    return made.sort_values("time_ns", ascending=False, kind="stable", ignore_index=True)
