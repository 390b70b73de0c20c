"""XPlane files of JAX's and TensorFlow's profilers: planes of lines of events, and the HLO of each program.

Field numbers are those of tsl/profiler/protobuf/xplane.proto.
"""

import re
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from benchmarker.formatting import clean, count, one_line
from benchmarker.traces.events import Texts, frame
from benchmarker.traces.formats import hlo
from benchmarker.traces.formats.hlo import Program
from benchmarker.traces.formats.notation import of_xla
from benchmarker.traces.formats.reading import COPY, DEVICE, STREAM, Reading, divided_cpu
from benchmarker.traces.formats.wire import (
    BYTES,
    NOTHING,
    VARINT,
    WireError,
    columns,
    fields,
    signed,
    text,
    varint,
    varints,
)

_CHUNK = 1 << 14
"""Number of events that are decoded at once."""

_PLANES, _ERRORS, _WARNINGS, _HOSTNAMES = 1, 2, 3, 4
"""Field numbers of a file."""
_LONGEST = 200
"""Most characters of a message that are shown."""
_LATEST_NS, _LATEST_PS = 1 << 61, 1 << 62
"""Limits of valid times: a machine's clock (73 years), and the offset and duration of an event of a line (53 days)."""

_METADATA_PLANE = "/host:metadata"
_HOST_PLANE = "/host:CPU"
_XLA_OPS = "XLA Ops"
_NUMBERED = re.compile(r"\((\d{1,20})\)$")
_END = "end: "
"""What precedes the op's name in the CPU's marker of an op's completion."""
_NOISE = "ThreadpoolListener::"
_OF_TENSORFLOW = "a_inference_"
"""How the names of programs begin that are made of functions of TensorFlow; those of JAX begin with `jit_`."""

_NUMBERS = ("program_id", "run_id", "correlation_id", "step_num", "device_ordinal", "_p", "_c")
_TEXTS = {"hlo_op": "hlo_op", "name": "name_path", "kernel_details": "kernel_details"}
"""Statistics of events that are read; texts with their names in this module. On a GPU, `name` is a path."""


@dataclass(frozen=True, slots=True)
class _Plane:
    """A plane's lines, and the names that its events and statistics refer to by number."""

    name: str
    lines: list[memoryview]
    events: dict[int, str]
    statistics: dict[int, str]
    metadata: list[memoryview]

    def numbers_of(self, *names: str) -> list[int]:
        """The numbers of statistics with these names."""
        return [number for number, name in self.statistics.items() if name in names]


def read(content: bytes) -> Reading:
    """Read the rows of an XPlane file. Raises `WireError` if it is not one or is cut short."""
    top = [(number, value) for number, value in fields(memoryview(content)) if isinstance(value, memoryview)]
    planes = [_plane(value) for number, value in top if number == _PLANES]
    if not planes:
        raise WireError("it contains no plane")
    lost = [_report(value) for number, value in top if number == _ERRORS]
    if _HOSTNAMES not in dict(top):
        lost.append("the host's name, the last entry of a complete file, is missing: the file may be cut short")
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
    timeless = sum(part.timeless for part in parts)
    if timeless:
        lost.append(f"{count(timeless, 'event has', 'events have')} no valid time")
    notes = [_report(value) for number, value in top if number == _WARNINGS]
    table = _table([part.columns for part in parts], interned)
    is_tensorflow = any(program.name.startswith(_OF_TENSORFLOW) for program in programs.values())
    framework = "tensorflow" if is_tensorflow else "jax"
    return Reading("xplane", framework, table, programs, lost=tuple(lost), notes=tuple(notes))


def _report(value: memoryview) -> str:
    """Return what the profiler reported, as one line."""
    return f"the profiler reports: {clean(one_line(text(value)[:_LONGEST]))}"


def _device(plane: str) -> str | None:
    if plane == _HOST_PLANE:
        return "cpu"
    match = DEVICE.match(plane)
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
                key = of.get(1, 0)
                if not isinstance(key, int):
                    raise WireError("the number of a name is not an integer")
                names[number][signed(key)] = text(of.get(2, memoryview(b"")))
                metadata += [entry] if number == 4 else []
    return _Plane(name, lines, names[4], names[5], metadata)


def _programs(plane: _Plane) -> Iterator[tuple[int, Program]]:
    """Programs by the profiler's number, which is at the end of the profiler's name for them."""
    for entry in plane.metadata:
        name, protos = "", []
        for number, value in fields(entry):
            if number == 2:
                name = text(value)
            elif number == 5 and isinstance(value, memoryview):
                protos += [part for inner, part in fields(value) if inner == 6 and isinstance(part, memoryview)]
        match = _NUMBERED.search(name)
        for proto in protos if match else ():
            assert match is not None
            yield signed(int(match[1]) % (1 << 64)), hlo.parse(proto)


@dataclass(frozen=True, slots=True)
class _Line:
    name: str
    timestamp_ns: int
    buffer: np.ndarray
    start: np.ndarray
    end: np.ndarray


def _line(proto: memoryview) -> _Line:
    """A line's name, its clock, and the positions of its events."""
    names: dict[int, str] = {}
    timestamp = 0
    heads = array("q")
    at, size = 0, len(proto)
    while at < size:
        head = at
        if proto[at] == 0x22 and at + 2 < size and (length := proto[at + 1]) < 128:  # an event of less than 128 bytes
            heads.append(at)
            at += length + 2
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
            heads.append(head)
        elif key >> 3 in (2, 11):
            names[key >> 3] = text(proto[at : at + length])
        at += length
    if at > size:
        raise WireError("it ends within a line")
    name = names.get(11) or names.get(2, "")
    buffer = np.frombuffer(proto, np.uint8)
    lengths, start = varints(buffer, np.frombuffer(heads, np.int64) + 1)
    return _Line(name, timestamp, buffer, start, start + lengths.astype(np.int64))


def _chosen(plane: _Plane, *, on_host: bool) -> list[_Line]:
    """The lines that show execution: every thread of the host; a device's streams, or its line of XLA's ops."""
    lines = [_line(proto) for proto in plane.lines]
    if on_host:
        seen: Counter[str] = Counter()
        for index, line in enumerate(lines):
            seen[line.name] += 1
            if seen[line.name] > 1:  # another thread of that name: its rows do not nest in those of the first
                lines[index] = replace(line, name=f"{line.name} ({seen[line.name]})")
        return lines
    streams = [line for line in lines if STREAM.match(line.name)]
    return streams or [line for line in lines if line.name == _XLA_OPS]


@dataclass(frozen=True, slots=True)
class _Part:
    """Columns of some of a line's events, and how many further events have no valid time."""

    columns: dict[str, np.ndarray]
    timeless: int


def _rows(plane: _Plane, line: _Line, device: str, op_kind: str, interned: Texts) -> Iterator[_Part]:
    """The columns of a line's events, in chunks."""
    match = STREAM.match(line.name)
    track = interned.code(f"stream {match[1]}" if match else line.name)
    for at in range(0, len(line.start), _CHUNK):
        found = _decode(line.buffer, line.start[at : at + _CHUNK], line.end[at : at + _CHUNK], plane, interned)
        start_ps, duration_ps = found["offset_ps"], found["duration_ps"]
        valid = (start_ps >= 0) & (start_ps < _LATEST_PS) & (duration_ps >= 0) & (duration_ps < _LATEST_PS)
        valid &= 0 <= line.timestamp_ns < _LATEST_NS
        timeless = int((~valid).sum())
        if timeless:
            found = {stat: values[valid] for stat, values in found.items()}
        start_ps, end_ps = found["offset_ps"], found["offset_ps"] + found["duration_ps"]
        rows = len(start_ps)
        name = interned.codes(found["metadata"], plane.events)
        kind = np.full(rows, interned.code("runtime"), np.int32)
        if device == "cpu":
            kind[found["hlo_op"] > 0] = interned.code(op_kind)
            kind[found["step_num"] >= 0] = interned.code("step")
        elif line.name == _XLA_OPS:
            kind[:] = interned.code("op")
            _describe_ops(found, plane, interned)
        else:
            kind[:] = interned.code("kernel")
            kind[interned.matching(name, COPY.search)] = interned.code("copy")
        made = {
            "kind": kind,
            "name": name,
            "device": np.full(rows, interned.code(device), np.int32),
            "track": np.full(rows, track, np.int32),
            "ts_ns": line.timestamp_ns + start_ps // 1000,
            "dur_ns": end_ps // 1000 - start_ps // 1000,
        }
        yield _Part({stat: found[stat] for stat in (*_NUMBERS, *_TEXTS.values())} | made, timeless)


def _describe_ops(found: dict[str, np.ndarray], plane: _Plane, interned: Texts) -> None:
    """Add names and programs of ops, which a TPU stores once for all events of an op, in their metadata."""
    names, programs = {}, {}
    for entry in plane.metadata:
        number, stats = 0, {}
        for field_number, value in fields(entry):
            if field_number == 1 and isinstance(value, int):
                number = signed(value)
            elif field_number == 4:
                names[number] = text(value)
            elif field_number == 5 and isinstance(value, memoryview):
                of = dict(fields(value))
                stats[of.get(1)] = of.get(3, of.get(4))
        for stat in plane.numbers_of("program_id"):
            if isinstance(program := stats.get(stat), int):
                programs[number] = signed(program)
    metadata = found["metadata"]
    own = interned.codes(metadata, names)
    found["hlo_op"] = np.where(found["hlo_op"] > 0, found["hlo_op"], own)
    of_op = np.array([programs.get(number, -1) for number in metadata.tolist()], np.int64)
    found["program_id"] = np.where(found["program_id"] >= 0, found["program_id"], of_op)


def _decode(
    buffer: np.ndarray, start: np.ndarray, end: np.ndarray, plane: _Plane, interned: Texts
) -> dict[str, np.ndarray]:
    """Fields and statistics of events as numbers, -1 if an event has none; a text is the number interned for it."""
    rows = len(start)
    raw = columns(buffer, start, end)
    made = {name: np.full(rows, -1) for name in _NUMBERS}
    made |= {name: np.zeros(rows, np.int32) for name in _TEXTS.values()}
    for name, number in (("metadata", 1), ("offset_ps", 2), ("duration_ps", 3)):
        column = raw.get((number, VARINT), NOTHING)
        made[name] = np.zeros(rows, np.int64)
        made[name][column.owner] = column.value.astype(np.int64)
    spans = raw.get((4, BYTES), NOTHING)
    stats = columns(buffer, spans.value, spans.end)
    kind, value = (np.full(len(spans.owner), -1) for _ in range(2))
    known = stats.get((1, VARINT), NOTHING)
    kind[known.owner] = known.value.astype(np.int64)
    for number in (3, 4):  # unsigned, signed
        column = stats.get((number, VARINT), NOTHING)
        value[column.owner] = column.value.astype(np.int64)
    for stat in _NUMBERS:
        chosen = np.isin(kind, plane.numbers_of(stat))
        made[stat][spans.owner[chosen]] = value[chosen]
    written, referred = stats.get((5, BYTES), NOTHING), stats.get((7, VARINT), NOTHING)
    for stat, name in _TEXTS.items():
        numbers = plane.numbers_of(stat)
        chosen = np.isin(kind[referred.owner], numbers)
        texts = interned.codes(referred.value[chosen].astype(np.int64), plane.statistics)
        made[name][spans.owner[referred.owner[chosen]]] = texts
        chosen = np.isin(kind[written.owner], numbers)
        ends = zip(written.value[chosen].tolist(), written.end[chosen].tolist(), strict=True)
        own = np.array([interned.code(text(buffer[first:last].data)) for first, last in ends], np.int32)
        made[name][spans.owner[written.owner[chosen]]] = own
    return made


def _table(parts: Sequence[dict[str, np.ndarray]], interned: Texts) -> pd.DataFrame:
    """One table of all lines; completion markers are joined to the ops that they complete, and left out."""
    found = {name: np.concatenate([part.pop(name) for part in parts]) for name in list(parts[0])} if parts else {}
    if not found:
        return frame({}, 0)
    marker = (found["_c"] != -1) & interned.matching(found["name"], lambda name: name.startswith(_END))
    wanted = ~marker & ~interned.matching(found["name"], lambda name: name.startswith(_NOISE))
    kept = slice(None) if wanted.all() else wanted
    end_ns = _completed(found["_p"], found["_c"], marker, found["ts_ns"], found["ts_ns"] + found["dur_ns"])
    run = pd.factorize(found["run_id"], sort=True)[0]
    run[found["run_id"] == -1] = -1
    launched = found["kernel_details"][kept]
    ops = found["kind"] == interned.code("op")
    found["device"] = divided_cpu(found["device"], found["device_ordinal"], ops, interned)
    columns_ = {
        "launch": interned.column(interned.translated(launched, lambda text: interned.code(of_xla(text)))),
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
    return frame(columns_, int(wanted.sum()))


def _completed(
    producer: np.ndarray, consumer: np.ndarray, marker: np.ndarray, ts_ns: np.ndarray, until_ns: np.ndarray
) -> np.ndarray:
    """When each op was complete, if its marker comes after its own end; otherwise -1."""
    end_ns = np.full(len(ts_ns), -1)
    markers = np.flatnonzero(marker)
    if not len(markers):
        return end_ns
    order = markers[np.argsort(consumer[markers], kind="stable")]
    numbers = consumer[order]
    ops = np.flatnonzero((producer != -1) & ~marker)
    place = np.minimum(np.searchsorted(numbers, producer[ops]), len(numbers) - 1)
    when = ts_ns[order[place]]
    late = (numbers[place] == producer[ops]) & (when > until_ns[ops])
    end_ns[ops[late]] = when[late]
    return end_ns
