"""Traces in Chrome's JSON format: those of PyTorch's profiler, of JAX's viewer, and of any program that writes it.

The format: "Trace Event Format", Google, 2016. What the categories mean in PyTorch: libkineto's output_json.cpp.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from benchmarker.traces.events import Texts, frame, grouped
from benchmarker.traces.json_events import Args, JsonEvents, Slice
from benchmarker.traces.op_cost import aten_cost, has_cost
from benchmarker.traces.reading import Reading
from benchmarker.traces.wire import signed

_KINDS = {
    "cpu_op": "op",
    "operator": "op",
    "user_annotation": "scope",
    "kernel": "kernel",
    "gpu_memcpy": "copy",
    "gpu_memset": "copy",
    "memcpy": "copy",
    "memset": "copy",
    "runtime": "runtime",
}
"""What an event of a category is, in lower case; one that ends in `_runtime` or `_driver` is a runtime call."""
_COPIES_OF_OTHERS = {"gpu_user_annotation", "trace", "overhead", "ac2g", "fwdbwd", "async_gpu"}
"""Categories that show again what other events say, or the profiler itself."""
_MODULE = "nn.Module: "
_COLLECTIVE = re.compile(r"(nccl|rccl|gloo|ucc|xccl|mpi):")
"""Annotations that PyTorch's own collectives make: they are ops, no scopes of the program."""
_STEP = re.compile(r"ProfilerStep#(\d{1,18})$")
_DEVICE = re.compile(r"/device:(GPU|TPU):(\d+)")
_STREAM = re.compile(r"Stream #(\d+)")
_COPY = re.compile(r"mem(cpy|set)|(copy|fill)Buffer", re.IGNORECASE)
JAX_LIMIT = 1_000_000
"""JAX's viewer file ends at this many events without a word (TF_PROFILER_TRACE_VIEWER_MAX_EVENTS lifts it)."""
_ASYNCHRONOUS = set("bneSTpF")
_NO_DURATION = set("iIRCstfPNODVvc()=")
"""Events of the format that have no duration, by their `ph`."""
_LONGEST = 60
"""Characters of a category that a note shows."""
_NO_ARGS = Args()
_INTEGERS = ("external_id", "sequence_nr", "forward_thread", "program_id", "run_id", "step_num")


def read(pieces: Iterator[bytes]) -> Reading:
    """The rows of a trace; raises `msgspec.DecodeError` where it is none."""
    source = JsonEvents()
    table = _Rows()
    for events in source.read(pieces):
        table.add(events)
    return table.reading(source)


class _Rows:
    """The columns of a table as they grow, and what is not in it."""

    def __init__(self) -> None:
        self.interned = Texts()
        self.parts: list[dict[str, np.ndarray]] = []
        self.processes: dict[Any, str] = {}
        self.threads: dict[Any, str] = {}
        self.open: dict[Any, list[Slice]] = {}
        self.places: dict[tuple[str, str], int] = {}
        self.seen = self.timeless = self.unmatched = self.unknown = self.asynchronous = 0
        self.left_out: dict[str, int] = {}
        self.costs: dict[Any, tuple[float, float] | None] = {}

    def add(self, events: list[Slice]) -> None:
        """Take in a list of events."""
        self.seen += len(events)
        slices = [each for each in events if each.ph == "X"]
        if slices:
            self._add_slices(slices)
        if len(slices) != len(events):
            paired = list(self._others(events))
            if paired:
                self._add_slices(paired)

    def _others(self, events: list[Slice]) -> Iterator[Slice]:
        """Names are taken down; begins and ends are made whole."""
        for each in events:
            if each.ph == "X":
                continue
            if each.ph == "M":
                name = _text((each.args or _NO_ARGS).name or "")
                if each.name == "process_name":
                    self.processes[_text(each.pid)] = name
                elif each.name == "thread_name":
                    self.threads[_text(each.pid), _text(each.tid)] = name
            elif each.ph == "B":
                self.open.setdefault((_text(each.pid), _text(each.tid)), []).append(each)
            elif each.ph == "E":
                stack = self.open.get((_text(each.pid), _text(each.tid)))
                if not stack:
                    self.unmatched += 1
                    continue
                begun = stack.pop()
                begin, end = _decimal(begun.ts), _decimal(each.ts)
                begun.ts, begun.dur = begin, end - begin if begin is not None and end is not None else None
                yield begun
            elif not isinstance(each.ph, str):
                self.unknown += each.ph is not None or each.ts is not None or each.name != ""  # JAX ends a file with {}
            else:
                self.asynchronous += each.ph in _ASYNCHRONOUS
                self.unknown += each.ph not in _ASYNCHRONOUS and each.ph not in _NO_DURATION

    def _add_slices(self, slices: list[Slice]) -> None:
        ts, dur, valid = _times(slices)
        if not valid.all():
            self.timeless += int((~valid).sum())
            slices = [each for each, good in zip(slices, valid.tolist(), strict=True) if good]
            ts, dur = ts[valid], dur[valid]
        args = [each.args or _NO_ARGS for each in slices]
        code = self.interned.code
        columns = {
            "name": _numbers([each.name for each in slices], lambda value: code(_text(value))),
            "cat": _numbers([each.cat for each in slices], lambda value: code(_text(value).lower())),
            "place": self._numbered_places(slices),
            "op": _numbers([each.hlo_op for each in args], lambda value: code(_text(value or ""))),
            "program": _numbers([each.hlo_module for each in args], lambda value: code(_text(value or ""))),
            "scope": _numbers([each.name for each in args], lambda value: code(_text(value or ""))),
            "device": _numbers([each.device for each in args], lambda value: code(_given(value))),
            "stream": _numbers([each.stream for each in args], lambda value: code(_given(value))),
        }
        columns |= {name: _integers(list(map(attrgetter(name), args))) for name in _INTEGERS}
        if (columns["external_id"] < 0).all():
            columns["external_id"] = _integers([each.older_external_id for each in args])
        columns["correlation"] = _integers([each.correlation or each.correlation_id for each in args])
        costs = np.full((2, len(slices)), np.nan)
        costing = np.flatnonzero(self.interned.matching(columns["name"], has_cost))
        if len(costing):
            costs[:, costing] = np.array([self._cost(slices[row], args[row]) for row in costing.tolist()]).T
        columns["flops"], columns["bytes"] = costs
        self.parts.append(columns | {"ts_ns": ts, "dur_ns": dur})

    def _numbered_places(self, slices: list[Slice]) -> np.ndarray:
        """The number of each event's process and thread."""
        texts: dict[str, int] = {}
        pid, tid = [each.pid for each in slices], [each.tid for each in slices]

        def number(value: Any) -> int:
            return texts.setdefault(_text(value), len(texts))

        group, first = grouped(_numbers(pid, number), _numbers(tid, number))
        keys = [(_text(pid[row]), _text(tid[row])) for row in first.tolist()]
        found: np.ndarray = np.array([self.places.setdefault(key, len(self.places)) for key in keys], np.int32)[group]
        return found

    def _cost(self, event: Slice, args: Args) -> tuple[float, float]:
        """FLOPs and bytes of an op by the shapes of its inputs."""
        if not args.dims:
            return _NO_COST
        key = (_text(event.name), bytes(args.dims), bytes(args.types), bytes(args.concrete))
        if key not in self.costs:
            try:
                dims, types, concrete = (msgspec.json.decode(part or b"[]") for part in key[1:])
                self.costs[key] = aten_cost(key[0], dims, types, concrete)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                self.costs[key] = None
        return self.costs[key] or _NO_COST

    def reading(self, source: JsonEvents) -> Reading:
        """All rows, and what is known to be missing."""
        lost = []
        if source.endless and not source.unread_bytes:
            lost.append("the list of events has no end: the file is cut short or damaged")
        if source.unread_bytes:
            lost.append(f"the last {source.unread_bytes} bytes hold no whole event: the file is cut short or damaged")
        if source.malformed:
            lost.append(f"{source.malformed} events could not be read")
        if self.unknown:
            lost.append(f"{self.unknown} events are of no known type")
        if self.timeless:
            lost.append(f"{self.timeless} events have no valid time")
        unmatched = self.unmatched + sum(len(stack) for stack in self.open.values())
        if unmatched:
            lost.append(f"{unmatched} begins and ends of events have no counterpart")
        jax = any(name.startswith(("/host:", "/device:")) for name in self.processes.values())
        if jax and self.seen >= JAX_LIMIT:
            lost.append(f"JAX's viewer file ends at {JAX_LIMIT:,} events: take the .xplane.pb beside it")
        torch = "schemaVersion" in source.beside or "cpu_op" in self.interned.values()
        if not self.parts:
            return Reading("chrome", "jax" if jax else "torch" if torch else "", frame({}, 0), lost=tuple(lost))
        found = {name: np.concatenate([part.pop(name) for part in self.parts]) for name in list(self.parts[0])}
        kind, name, step = self._kinds(found, torch)
        wanted = kind != _DROPPED
        kept = slice(None) if wanted.all() else wanted
        notes = [
            f"{count} events of the category {category[:_LONGEST] or '(none)'!r} are left out"
            for category, count in self.left_out.items()
        ]
        if self.asynchronous:
            notes.append(f"{self.asynchronous} events of asynchronous slices are left out")
        device, track = self._places(found, kind)
        run = pd.factorize(found["run_id"], sort=True)[0]
        run[found["run_id"] == -1] = -1
        text = self.interned.column
        columns = {
            "kind": text(kind[kept]),
            "name": text(name[kept]),
            **{each: text(found.pop(each)[kept]) for each in ("op", "scope", "program")},
            "device": text(device[kept]),
            "track": text(track[kept]),
            "step": step[kept],
            "run": run[kept],
            **{
                each: found.pop(each)[kept]
                for each in ("ts_ns", "dur_ns", "program_id", "correlation", "external_id", "sequence_nr")
            },
            **{each: found.pop(each)[kept] for each in ("flops", "bytes")},
        }
        return Reading(
            "chrome",
            "jax" if jax else "torch" if torch else "",
            frame(columns, int(wanted.sum())),
            forward_thread=found["forward_thread"][kept],
            lost=tuple(lost),
            notes=tuple(notes),
        )

    def _kinds(self, found: dict[str, np.ndarray], torch: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Kind and name of each row, as numbers of texts, and its step; rows that are left out are `_DROPPED`."""
        code, values, each_of = self.interned.code, self.interned.values, self.interned.translated
        category, name = found["cat"], found["name"].copy()
        kind = each_of(category, lambda text: code(kept) if (kept := _kind_of(text, torch)) else _DROPPED)
        modules = self.interned.matching(name, lambda text: text.startswith(_MODULE))
        scope, step = code("scope"), np.full(len(kind), -1)
        kind[modules & (category == code("python_function"))] = scope
        name[modules] = each_of(name[modules], lambda text: code(text.removeprefix(_MODULE)))
        scopes = np.flatnonzero(kind == scope)
        kind[scopes[self.interned.matching(name[scopes], _COLLECTIVE.match)]] = code("op")
        steps = scopes[self.interned.matching(name[scopes], _STEP.match)]
        kind[steps] = code("step")
        step[steps] = each_of(name[steps], lambda text: int(match[1]) if (match := _STEP.match(text)) else -1)
        if any(_DEVICE.match(process) for process in self.processes.values()) or (found["op"] > 0).any():
            self._jax_kinds(found, kind)
            chosen = found["step_num"] >= 0
            kind[chosen], step[chosen] = code("step"), found["step_num"][chosen]
        dropped, counts = np.unique(category[kind == _DROPPED], return_counts=True)
        self.left_out = {values()[each]: count for each, count in zip(dropped.tolist(), counts.tolist(), strict=True)}
        return kind, name, step

    def _jax_kinds(self, found: dict[str, np.ndarray], kind: np.ndarray) -> None:
        """In JAX's file the process and the thread say what an event is."""
        code = self.interned.code
        names = [self._names(pid, tid) for pid, tid in self.places]
        device = np.array([bool(_DEVICE.match(process)) for process, _ in names])[found["place"]]
        stream = np.array([bool(_STREAM.search(thread)) for _, thread in names])[found["place"]]
        copy = self.interned.matching(found["name"], _COPY.search)
        on_device = any(_DEVICE.match(process) for process in self.processes.values())
        host_kind = np.where(found["op"] > 0, code("runtime" if on_device else "op"), code("runtime"))
        device_kind = np.where(stream, np.where(copy, code("copy"), code("kernel")), _DROPPED)
        kind[:] = np.where(device, device_kind, host_kind)

    def _places(self, found: dict[str, np.ndarray], kind: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Device and track of each row: an accelerator's stream, or a thread of the host."""
        code = self.interned.code
        on_device = np.isin(kind, [code("kernel"), code("copy")])
        values, places = self.interned.values(), list(self.places)
        one_process = len({pid for pid, _ in places}) < 2
        alike = Counter((pid, self._names(pid, tid)[1]) for pid, tid in places)
        keys = (found["place"], found["device"], found["stream"], on_device)
        group, first = grouped(*keys, ordered=True)
        devices, tracks = [], []
        for place, index, stream, accelerated in zip(*(key[first].tolist() for key in keys), strict=True):
            pid, tid = places[place]
            process, thread = self._names(pid, tid)
            if accelerated:
                match, number = _DEVICE.match(process), _STREAM.search(thread)
                devices.append(code(f"{match[1].lower()}:{match[2]}" if match else f"gpu:{values[index] or pid}"))
                tracks.append(code(f"stream {number[1] if number else values[stream] or tid}"))
            else:
                devices.append(code("cpu"))
                named = thread if thread and alike[pid, thread] == 1 else f"{thread or 'thread'} {tid}"
                tracks.append(code(named if one_process else f"process {pid} {named}"))
        return np.array(devices, np.int32)[group], np.array(tracks, np.int32)[group]

    def _names(self, pid: str, tid: str) -> tuple[str, str]:
        """Names of a process and a thread."""
        return self.processes.get(pid, ""), self.threads.get((pid, tid), "")


_DROPPED = -1
_NO_COST = (float("nan"), float("nan"))


def _kind_of(category: str, torch: bool) -> str | None:
    """What events of a category (in lower case) are; None where they are left out, as what is unknown in PyTorch's."""
    if category.endswith(("_runtime", "_driver")):
        return "runtime"
    if category in _COPIES_OF_OTHERS or category == "python_function":
        return None
    return _KINDS.get(category, None if torch else "op")


def _text(value: Any) -> str:
    """A text as it is, anything else as it is written."""
    if type(value) is str:
        return value
    try:
        return repr(value)
    except RecursionError:
        return f"({type(value).__name__})"


def _given(value: Any) -> str:
    return "" if value is None else _text(value)


def _numbers(values: list[Any], number: Callable[[Any], int]) -> np.ndarray:
    """The number of each value, which is asked for once for equal ones where these are surely written alike."""
    if set(map(type, values)) <= {str, int, type(None)}:
        known = {value: number(value) for value in dict.fromkeys(values)}
        if len(known) == 1:
            return np.full(len(values), known[values[0]], np.int32)
        return np.fromiter(map(known.__getitem__, values), np.int32, len(values))
    return np.array([number(value) for value in values], np.int32)


def _integers(values: list[Any]) -> np.ndarray:
    """Values as int64, -1 for what is none; texts of digits count as numbers."""
    types = set(map(type, values))
    if types == {type(None)}:
        return np.full(len(values), -1)
    if types <= {int, type(None)}:
        try:
            return np.array([-1 if value is None else value for value in values], np.int64)
        except OverflowError:
            pass
    return np.array([_integer(value) for value in values], np.int64)


def _integer(value: Any) -> int:
    """A number of 64 bits, taken for signed; -1 for what is none."""
    if type(value) not in (int, str) and not (type(value) is float and value.is_integer()):
        return -1
    try:
        number = int(value)
    except ValueError:
        return -1
    return signed(number) if 0 <= number < 1 << 64 else number if -(1 << 63) <= number < 0 else -1


def _times(slices: list[Slice]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Begins and durations in ns, and which of them are times at all: numbers, not negative, of less than 146 years."""
    times = [each.ts for each in slices], [each.dur for each in slices]
    types = {*map(type, times[0]), *map(type, times[1])}
    if not types <= {int, float, Decimal}:
        times = [_decimal(value) for value in times[0]], [_decimal(value) for value in times[1]]
    ts, dur = (_floats(values) for values in times)
    with np.errstate(invalid="ignore"):
        valid = (ts >= 0) & (ts < _LATEST_US) & (dur >= 0) & (dur < _LATEST_US)
    if types <= {int, float}:
        return _nanoseconds(np.where(valid, ts, 0)), _nanoseconds(np.where(valid, dur, 0)), valid
    begin, length = (
        np.array(
            [_whole_ns(value) if good else 0 for value, good in zip(values, valid.tolist(), strict=True)], np.int64
        )
        for values in times
    )
    return begin, length, valid


_LATEST_US = float(1 << 62) / 1000


def _decimal(value: Any) -> Decimal | None:
    """A number as it is written, None where it is none; texts of numbers count."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        return None
    try:
        number = Decimal(value)
    except ArithmeticError:
        return None
    return number if number.is_finite() else None


def _floats(values: list[Any]) -> np.ndarray:
    """Numbers as floats, NaN for none."""
    try:
        return np.array(values, float)
    except OverflowError:  # an integer of more than 300 digits
        return np.array([None if value is None else float(Decimal(value)) for value in values], float)


def _whole_ns(microseconds: Any) -> int:
    return round(Decimal(microseconds) * 1000)


def _nanoseconds(microseconds: np.ndarray) -> np.ndarray:
    """Whole ns; the whole µs are taken apart first, so that no digit of a large time is lost."""
    whole = np.floor(microseconds)
    found: np.ndarray = whole.astype(np.int64) * 1000 + np.rint((microseconds - whole) * 1000).astype(np.int64)
    return found
