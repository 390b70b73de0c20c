"""XPlane files, as JAX's profiler writes them: planes of lines of events, and the HLO of each program.

Field numbers are those of tsl/profiler/protobuf/xplane.proto.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from benchmarker.traces import hlo
from benchmarker.traces.events import Texts, frame
from benchmarker.traces.hlo import Program
from benchmarker.traces.reading import Reading
from benchmarker.traces.wire import BYTES, NOTHING, VARINT, WireError, columns, fields, signed, text, varint

_CHUNK = 1 << 18
"""Events that are decoded at once."""

_METADATA_PLANE = "/host:metadata"
_HOST_PLANE = "/host:CPU"
_DEVICE_PLANE = re.compile(r"/device:(GPU|TPU):(\d+)")
_STREAM = re.compile(r"Stream #(\d+)")
_XLA_OPS = "XLA Ops"
_NUMBERED = re.compile(r"(.*)\((\d+)\)$", re.DOTALL)
_COPY = re.compile(r"mem(cpy|set)|(copy|fill)Buffer", re.IGNORECASE)
_END = "end: "
"""What the CPU's marker of an op's completion has before the op's name."""
_NOISE = "ThreadpoolListener::"

_NUMBERS = ("program_id", "run_id", "correlation_id", "step_num", "_p", "_c")
_TEXTS = ("hlo_op", "name")
"""Statistics of events that are read; on a GPU, `name` is the instruction's path."""


@dataclass(frozen=True, slots=True)
class _Plane:
    """A plane's lines, and the names that its events and statistics refer to by number."""

    name: str
    lines: list[memoryview]
    events: dict[int, str]
    statistics: dict[int, str]
    metadata: list[memoryview]
    _numbers: dict[str, int] = field(default_factory=dict)

    def number_of(self, value: str) -> int:
        """The number of a text among the statistics; a new one is given the next."""
        if value not in self._numbers:
            self._numbers[value] = max(self.statistics, default=0) + 1
            self.statistics[self._numbers[value]] = value
        return self._numbers[value]


def read(content: bytes) -> Reading:
    """The rows of an XPlane file; raises `WireError` where it is none or is cut short."""
    whole = memoryview(content)
    planes = [_plane(value) for number, value in fields(whole) if number == 1 and isinstance(value, memoryview)]
    if not planes:
        raise WireError("it holds no plane")
    programs = {
        number: program for plane in planes if plane.name == _METADATA_PLANE for number, program in _programs(plane)
    }
    devices = [(device, plane) for plane in planes if (device := _device(plane.name))]
    op_kind = "runtime" if any(device != "cpu" for device, _ in devices) else "op"
    interned = Texts()
    parts = [
        part
        for device, plane in devices
        for line in _chosen(plane, on_host=device == "cpu")
        for part in _rows(plane, line, device, op_kind, interned)
    ]
    return Reading("xplane", "jax", _table(parts, interned), programs)


def _device(plane: str) -> str | None:
    if plane == _HOST_PLANE:
        return "cpu"
    match = _DEVICE_PLANE.match(plane)
    return f"{match[1].lower()}:{match[2]}" if match else None


def _plane(proto: memoryview) -> _Plane:
    name = ""
    lines: list[memoryview] = []
    metadata: list[memoryview] = []
    names: dict[int, dict[int, str]] = {4: {}, 5: {}}
    for number, value in fields(proto):
        if number == 2:
            name = text(value)
        elif isinstance(value, memoryview) and number == 3:
            lines.append(value)
        elif isinstance(value, memoryview) and number in names:
            entry = next((part for inner, part in fields(value) if inner == 2), None)
            if isinstance(entry, memoryview):
                of = dict(fields(entry))
                names[number][int(of.get(1, 0))] = text(of.get(2, memoryview(b"")))
                metadata += [entry] if number == 4 else []
    return _Plane(name, lines, names[4], names[5], metadata)


def _programs(plane: _Plane) -> Iterator[tuple[int, Program]]:
    """Programs by the profiler's number, which stands at the end of the name that it gives them."""
    for entry in plane.metadata:
        name, protos = "", []
        for number, value in fields(entry):
            if number == 2:
                name = text(value)
            elif number == 5 and isinstance(value, memoryview):
                protos += [part for inner, part in fields(value) if inner == 6 and isinstance(part, memoryview)]
        match = _NUMBERED.match(name)
        for proto in protos if match else ():
            assert match is not None
            yield int(match[2]), hlo.parse(proto)


@dataclass(frozen=True, slots=True)
class _Line:
    name: str
    timestamp_ns: int
    start: np.ndarray
    end: np.ndarray


def _line(proto: memoryview) -> _Line:
    """A line's name, its clock, and where in it the events lie."""
    names: dict[int, str] = {}
    timestamp = 0
    starts: list[int] = []
    ends: list[int] = []
    at, size = 0, len(proto)
    while at < size:
        if proto[at] == 0x22 and at + 2 < size and proto[at + 1] < 128:  # field 4, an event of less than 128 bytes
            start = at + 2
            at = start + proto[at + 1]
            starts.append(start)
            ends.append(at)
            continue
        key, at = varint(proto, at)
        length, at = varint(proto, at)
        if key & 7 == VARINT:
            if key >> 3 == 3:
                timestamp = signed(length)
            continue
        if key & 7 != BYTES:
            raise WireError(f"a line's field of wire type {key & 7}")
        if key >> 3 == 4:
            starts.append(at)
            ends.append(at + length)
        elif key >> 3 in (2, 11):
            names[key >> 3] = text(proto[at : at + length])
        at += length
    if at > size:
        raise WireError("it ends within a line")
    return _Line(names.get(11) or names.get(2, ""), timestamp, np.array(starts, np.int64), np.array(ends, np.int64))


def _chosen(plane: _Plane, *, on_host: bool) -> list[memoryview]:
    """The lines of what really ran: every thread; of a device its streams, or the line of XLA's ops."""
    if on_host:
        return plane.lines
    named = [(_line_name(line), line) for line in plane.lines]
    streams = [line for name, line in named if _STREAM.match(name)]
    return streams or [line for name, line in named if name == _XLA_OPS]


def _line_name(proto: memoryview) -> str:
    found = {number: text(value) for number, value in fields(proto) if number in (2, 11)}
    return found.get(11) or found.get(2, "")


def _rows(
    plane: _Plane, proto: memoryview, device: str, op_kind: str, interned: Texts
) -> Iterator[dict[str, np.ndarray]]:
    """The columns of a line's events, in chunks."""
    line = _line(proto)
    match = _STREAM.match(line.name)
    track = interned.code(f"stream {match[1]}" if match else line.name)
    buffer = np.frombuffer(proto, np.uint8)
    for at in range(0, len(line.start), _CHUNK):
        found = _decode(buffer, line.start[at : at + _CHUNK], line.end[at : at + _CHUNK], plane)
        rows = len(found["metadata"])
        name = interned.codes(found["metadata"], plane.events)
        start_ps, end_ps = found["offset_ps"], found["offset_ps"] + found["duration_ps"]
        found["hlo_op"], found["name_path"] = (interned.codes(found[stat], plane.statistics) for stat in _TEXTS)
        kind = np.full(rows, interned.code("runtime"), np.int32)
        if device == "cpu":
            kind[found["hlo_op"] > 0] = interned.code(op_kind)
            kind[found["step_num"] >= 0] = interned.code("step")
        else:
            kind[:] = interned.code("kernel")
            kind[interned.matching(name, _COPY.search)] = interned.code("copy")
        yield found | {
            "kind": kind,
            "name": name,
            "device": np.full(rows, interned.code(device), np.int32),
            "track": np.full(rows, track, np.int32),
            "ts_ns": line.timestamp_ns + start_ps // 1000,
            "dur_ns": end_ps // 1000 - start_ps // 1000,
        }


def _decode(buffer: np.ndarray, start: np.ndarray, end: np.ndarray, plane: _Plane) -> dict[str, np.ndarray]:
    """Numbers of events by their fields and statistics, -1 where one has none; a text is the plane's number of it."""
    rows = len(start)
    raw = columns(buffer, start, end)
    made = {name: np.full(rows, -1) for name in (*_NUMBERS, *_TEXTS)}
    for name, number in (("metadata", 1), ("offset_ps", 2), ("duration_ps", 3)):
        column = raw.get((number, VARINT), NOTHING)
        made[name] = np.zeros(rows, np.int64)
        made[name][column.owner] = column.value.astype(np.int64)
    spans = raw.get((4, BYTES), NOTHING)
    stats = columns(buffer, spans.value, spans.end)
    kind, value = (np.full(len(spans.owner), -1) for _ in range(2))
    known = stats.get((1, VARINT), NOTHING)
    kind[known.owner] = known.value.astype(np.int64)
    for number in (3, 4, 7):  # unsigned, signed, and the number of a text
        column = stats.get((number, VARINT), NOTHING)
        value[column.owner] = column.value.astype(np.int64)
    column = stats.get((5, BYTES), NOTHING)  # a text that stands in the event itself
    for index, begin, until in zip(column.owner.tolist(), column.value.tolist(), column.end.tolist(), strict=True):
        if plane.statistics.get(int(kind[index])) in _TEXTS:
            value[index] = plane.number_of(buffer[begin:until].tobytes().decode("utf-8", "replace"))
    for number, name in plane.statistics.items():
        if name in _NUMBERS or name in _TEXTS:
            chosen = np.flatnonzero(kind == number)
            made[name][spans.owner[chosen]] = value[chosen]
    return made


def _table(parts: Sequence[dict[str, np.ndarray]], interned: Texts) -> pd.DataFrame:
    """One table of all lines; markers of completion are joined to the ops that they complete and left out."""
    found = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]} if parts else {}
    if not found:
        return frame({}, 0)
    marker = (found["_c"] >= 0) & interned.matching(found["name"], lambda name: name.startswith(_END))
    kept = ~marker & ~interned.matching(found["name"], lambda name: name.startswith(_NOISE))
    end_ns = _completed(found["_p"], found["_c"], marker, found["ts_ns"], found["ts_ns"] + found["dur_ns"])
    run = np.unique(found["run_id"], return_inverse=True)[1].astype(np.int64)
    run[found["run_id"] == -1] = -1
    columns_ = {
        **{name: interned.column(found[name][kept]) for name in ("kind", "name", "device", "track")},
        "op": interned.column(found["hlo_op"][kept]),
        "scope": interned.column(found["name_path"][kept]),
        "ts_ns": found["ts_ns"][kept],
        "dur_ns": found["dur_ns"][kept],
        "end_ns": end_ns[kept],
        "step": found["step_num"][kept],
        "program_id": found["program_id"][kept],
        "run": run[kept],
        "correlation": found["correlation_id"][kept],
    }
    return frame(columns_, int(kept.sum()))


def _completed(
    producer: np.ndarray, consumer: np.ndarray, marker: np.ndarray, ts_ns: np.ndarray, until_ns: np.ndarray
) -> np.ndarray:
    """When each op was complete, where its marker comes after its own end; else -1."""
    end_ns = np.full(len(ts_ns), -1)
    markers = np.flatnonzero(marker)
    if not len(markers):
        return end_ns
    order = markers[np.argsort(consumer[markers], kind="stable")]
    numbers = consumer[order]
    ops = np.flatnonzero((producer >= 0) & ~marker)
    place = np.minimum(np.searchsorted(numbers, producer[ops]), len(numbers) - 1)
    when = ts_ns[order[place]]
    late = (numbers[place] == producer[ops]) & (when > until_ns[ops])
    end_ns[ops[late]] = when[late]
    return end_ns
