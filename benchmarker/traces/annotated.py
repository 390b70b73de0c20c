"""Write an event table in Chrome's trace format, for https://ui.perfetto.dev and chrome://tracing.

Perfetto's JSON reader has limitations that determine the form of the file:

- It reads times as floating-point numbers of microseconds, which are exact to the nanosecond below 2^51 ns (26 days).
  Times therefore count from the first event, and `otherData.base_ts_ns` is the time of that event.
- It drops a slice that overlaps another slice of its thread without nesting in it. Such rows go to additional threads,
  such as `stream 7 (2)`.
- Of the JSON escapes, it decodes only that of the quotation mark, and it fails on a text that ends in a backslash.
  Control characters and backslashes are therefore replaced by characters that look like them.
"""

import gzip
import heapq
from bisect import bisect_left, insort
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import msgspec
import numpy as np
import pandas as pd

from benchmarker.api.errors import UserError, attempt
from benchmarker.files import atomic
from benchmarker.traces import profile_files
from benchmarker.traces.events import ON_DEVICE

_PIECE_ROWS = 50_000
_LEVEL = 1
_LIMIT_NS = 1 << 51
_LOOKALIKES = {**{code: 0x2400 + code for code in range(32)}, ord("\\"): 0x29F5}
"""Replacements of control characters by their Unicode pictures, and of the backslash by a similar operator."""


class _Args(msgspec.Struct, omit_defaults=True, gc=False):
    event_id: int = -1
    name: str = ""
    scope: str = ""
    leaf: str = ""
    phase: str = ""
    category: str = ""
    op: str = ""
    program: str = ""
    step: int = -1
    self_ns: int = -1
    busy_ns: int = -1


class _Slice(msgspec.Struct, omit_defaults=True, tag_field="ph", tag="X", gc=False):
    name: str
    cat: str
    pid: int
    tid: int
    ts: float
    dur: float
    args: _Args
    bind_id: str = ""
    flow_in: bool = False
    flow_out: bool = False


def write_events(events: pd.DataFrame, path: Path) -> None:
    """Write an event table to `path`, completely or not at all; it is compressed if the name ends in `.gz`."""
    with attempt(f"cannot write {path}", "fix that or name another file"), atomic.whole(path) as file:
        if path.suffix == ".gz":
            with gzip.GzipFile(fileobj=file, mode="wb", compresslevel=_LEVEL, mtime=0) as packed:
                _write(events, packed)
        else:
            _write(events, file)


def _write(events: pd.DataFrame, file: IO[bytes] | gzip.GzipFile) -> None:
    begin = events.ts_ns.to_numpy(np.int64)
    length = np.maximum(events.dur_ns.to_numpy(np.int64), 0)
    base = int(begin.min()) if len(begin) else 0
    if len(begin) and int((begin - base + length).max()) >= _LIMIT_NS:
        raise UserError("the trace spans more than 26 days; its clocks disagree, so record it again")
    order = np.lexsort((-length, begin))
    pid, tid, metadata = _threads(events, begin, begin + length, order)
    bind, into, out = _flows(events, begin, tid)
    columns = {
        "name": _texts(events["name"]),
        "cat": _texts(events["kind"]),
        **{name: _texts(events[name]) for name in ("scope", "leaf", "phase", "category", "op", "program")},
    }
    file.write(b'{"displayTimeUnit":"ns","otherData":{"base_ts_ns":"%d"},"traceEvents":[\n' % base)
    file.write(b",\n".join(map(msgspec.json.encode, metadata)))
    order = order[(events["kind"] != "memory").to_numpy()[order]]
    for start in range(0, len(order), _PIECE_ROWS):
        rows = order[start : start + _PIECE_ROWS]
        texts = {name: values[codes[rows]].tolist() for name, (codes, values) in columns.items()}
        args = map(
            _Args,
            events.index.to_numpy()[rows].tolist(),
            map(_path, texts["scope"], texts["op"]),
            *(texts[name] for name in ("scope", "leaf", "phase", "category", "op", "program")),
            *(events[name].to_numpy()[rows].tolist() for name in ("step", "self_ns", "busy_ns")),
        )
        slices = map(
            _Slice,
            texts["name"],
            texts["cat"],
            pid[rows].tolist(),
            tid[rows].tolist(),
            ((begin[rows] - base) / 1000).tolist(),
            (length[rows] / 1000).tolist(),
            args,
            [hex(number) if number >= 0 else "" for number in bind[rows].tolist()],
            into[rows].tolist(),
            out[rows].tolist(),
        )
        file.write(b",\n" + msgspec.json.encode(list(slices))[1:-1])
    file.write(b"\n]}\n")


def _path(scope: str, op: str) -> str:
    """The value of `args.name`: the scope's path with the op at its end, as in JAX's own GPU traces."""
    return f"{scope}/{op}" if scope and op else scope


def _texts(column: pd.Series) -> tuple[np.ndarray, np.ndarray]:
    """A text column as codes and their texts, adapted to Perfetto; a missing text is empty."""
    held = column.astype("category").cat
    values = [str(value).translate(_LOOKALIKES) for value in held.categories]
    return held.codes.to_numpy(np.int64), np.array([*values, ""], dtype=object)


def _threads(
    events: pd.DataFrame, begin: np.ndarray, end: np.ndarray, order: np.ndarray
) -> tuple[np.ndarray, np.ndarray, Iterator[dict[str, object]]]:
    """Process and thread of each row, and the events that name them; rows of a thread overlap only by nesting."""
    device, devices = _texts(events["device"])
    track, tracks = _texts(events["track"])
    places, place = np.unique(device * len(tracks) + track, return_inverse=True)
    lanes = [_Lanes() for _ in places]
    lane = np.zeros(len(events), np.int64)
    at, begins, ends = place[order].tolist(), begin[order].tolist(), end[order].tolist()
    lane[order] = [lanes[where].take(first, last) for where, first, last in zip(at, begins, ends, strict=True)]
    first_tid = len(devices) + 1 + np.cumsum([0, *(len(lane) for lane in lanes)])

    def metadata() -> Iterator[dict[str, object]]:
        for process in np.unique(places // len(tracks)).tolist():
            named = {"ph": "M", "pid": process + 1, "ts": 0}
            yield {**named, "name": "process_name", "args": {"name": devices[process]}}
            yield {**named, "name": "process_sort_index", "args": {"sort_index": process}}
        for number, taken in enumerate(places.tolist()):
            process, thread = divmod(taken, len(tracks))
            for offset in range(len(lanes[number])):
                tid = int(first_tid[number]) + offset
                title = f"{tracks[thread]} ({offset + 1})" if offset else tracks[thread]
                named = {"ph": "M", "pid": process + 1, "tid": tid, "ts": 0}
                yield {**named, "name": "thread_name", "args": {"name": title}}
                yield {**named, "name": "thread_sort_index", "args": {"sort_index": tid}}

    return device + 1, first_tid[place] + lane, metadata()


class _Lanes:
    """The threads of one track; slices come sorted by begin, the longer first, and each goes where it nests."""

    __slots__ = ("free", "open", "stacks")

    def __init__(self) -> None:
        self.stacks: list[list[int]] = []  # for each lane, the ends of the open slices, the innermost last
        self.open: list[tuple[int, int]] = []  # sorted ends of the innermost slices, with their lanes
        self.free: list[int] = []  # lanes without an open slice

    def __len__(self) -> int:
        return len(self.stacks)

    def take(self, begin: int, end: int) -> int:
        """The lane of a slice: the one whose open slice encloses it most tightly, otherwise the first that is free."""
        while self.open and self.open[0][0] <= begin:
            lane = self.open.pop(0)[1]
            stack = self.stacks[lane]
            while stack and stack[-1] <= begin:
                stack.pop()
            if stack:
                insort(self.open, (stack[-1], lane))
            else:
                heapq.heappush(self.free, lane)
        enclosing = bisect_left(self.open, (end, 0))
        if enclosing < len(self.open):
            lane = self.open.pop(enclosing)[1]
        elif self.free:
            lane = heapq.heappop(self.free)
        else:
            lane = len(self.stacks)
            self.stacks.append([])
        self.stacks[lane].append(end)
        insort(self.open, (end, lane))
        return lane


def _flows(events: pd.DataFrame, begin: np.ndarray, tid: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Arrows from launches to what they launched: a row's arrow or -1, and whether the arrow ends or begins at it.

    Perfetto draws no arrow that goes back in time.
    """
    parent = events.index.get_indexer(events.parent_id.to_numpy())
    launched = events.kind.isin(ON_DEVICE).to_numpy()
    row = np.flatnonzero(launched & (parent >= 0))
    source = parent[row]
    drawn = ~launched[source] & (tid[source] != tid[row]) & (begin[source] <= begin[row])
    row, source = row[drawn], source[drawn]
    bind = np.full(len(events), -1)
    into, out = np.zeros(len(events), bool), np.zeros(len(events), bool)
    bind[row] = bind[source] = source
    into[row] = out[source] = True
    return bind, into, out


def write(result: Path, output: Path | None = None) -> Path:
    """Write the annotated trace of a result, unless it exists and is newer than its source; returns its path."""
    path = output or profile_files.annotated_path(result)
    if output and not output.parent.is_dir():
        raise UserError(f"there is no folder {output.parent}; create it first")
    if output or not _is_newer(path, result):
        write_events(profile_files.events_of(result), path)
    return path


def _is_newer(path: Path, source: Path) -> bool:
    """Whether a file is newer than its source and, if the source is a folder, than every file in it."""
    try:
        sources = [source, *(source.rglob("*") if source.is_dir() else ())]
        newest: int = max(source.stat().st_mtime_ns for source in sources if source != path)
        return path.stat().st_mtime_ns >= newest
    except OSError:
        return False
