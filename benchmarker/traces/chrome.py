"""Traces in Chrome's JSON format: those of PyTorch's profiler, of JAX's viewer, and of any program that writes it.

The format: "Trace Event Format", Google, 2016. What the categories mean in PyTorch: libkineto's output_json.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from benchmarker.traces.events import Texts, frame
from benchmarker.traces.json_events import Args, JsonEvents, Slice
from benchmarker.traces.op_cost import aten_cost
from benchmarker.traces.reading import Reading

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
_STEP = re.compile(r"ProfilerStep#(\d+)$")
_DEVICE = re.compile(r"/device:(GPU|TPU):(\d+)")
_STREAM = re.compile(r"Stream #(\d+)")
_COPY = re.compile(r"mem(cpy|set)|(copy|fill)Buffer", re.IGNORECASE)
JAX_LIMIT = 1_000_000
"""JAX's viewer file ends at this many events without a word (TF_PROFILER_TRACE_VIEWER_MAX_EVENTS lifts it)."""
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
        self.seen = self.timeless = self.unmatched = 0
        self.left_out: dict[str, int] = {}
        self.costs: dict[Any, tuple[float, float] | None] = {}

    def add(self, events: list[Slice]) -> None:
        """Take in a list of events."""
        self.seen += len(events)
        slices = [each for each in events if each.ph == "X"]
        if len(slices) != len(events):
            slices += list(self._others(events))
        if slices:
            self._add_slices(slices)

    def _others(self, events: list[Slice]) -> Iterator[Slice]:
        """Names are taken down; begins and ends are made whole."""
        for each in events:
            if each.ph == "M":
                name = str((each.args or _NO_ARGS).name or "")
                if each.name == "process_name":
                    self.processes[_key(each.pid)] = name
                elif each.name == "thread_name":
                    self.threads[_key(each.pid), _key(each.tid)] = name
            elif each.ph == "B":
                self.open.setdefault((_key(each.pid), _key(each.tid)), []).append(each)
            elif each.ph == "E":
                stack = self.open.get((_key(each.pid), _key(each.tid)))
                try:
                    begun = stack.pop() if stack else None
                    if begun is None:
                        self.unmatched += 1
                    else:
                        begun.dur = each.ts - begun.ts
                        yield begun
                except TypeError:
                    self.timeless += 1

    def _add_slices(self, slices: list[Slice]) -> None:
        ts, dur, valid = _times(slices)
        if not valid.all():
            self.timeless += int((~valid).sum())
            slices = [each for each, good in zip(slices, valid.tolist(), strict=True) if good]
            ts, dur = ts[valid], dur[valid]
        args = [each.args or _NO_ARGS for each in slices]
        code = self.interned.code
        made = {
            "name": [code(_text(each.name)) for each in slices],
            "cat": [code(_text(each.cat).lower()) for each in slices],
            "place": [code(f"{_key(each.pid)}\0{_key(each.tid)}") for each in slices],
            "op": [code(_text(each.hlo_op or "")) for each in args],
            "program": [code(_text(each.hlo_module or "")) for each in args],
            "scope": [code(_text(each.name or "")) for each in args],
            "device": [code("" if each.device is None else _text(each.device)) for each in args],
            "stream": [code("" if each.stream is None else _text(each.stream)) for each in args],
        }
        columns = {name: np.array(codes, np.int32) for name, codes in made.items()}
        columns |= {name: _integers([getattr(each, name) for each in args]) for name in _INTEGERS}
        columns["correlation"] = _integers([each.correlation or each.correlation_id for each in args])
        costs = [self._cost(each, its) for each, its in zip(slices, args, strict=True)]
        columns["flops"], columns["bytes"] = np.array(costs, float).reshape(-1, 2).T
        self.parts.append(columns | {"ts_ns": ts, "dur_ns": dur})

    def _cost(self, event: Slice, args: Args) -> tuple[float, float]:
        """FLOPs and bytes of an op by the shapes of its inputs."""
        if not args.dims:
            return _NO_COST
        key = (event.name, bytes(args.dims), bytes(args.types), bytes(args.concrete))
        if key not in self.costs:
            try:
                dims, types, concrete = (msgspec.json.decode(part or b"[]") for part in key[1:])
                self.costs[key] = aten_cost(_text(event.name), dims, types, concrete)
            except msgspec.DecodeError:
                self.costs[key] = None
        return self.costs[key] or _NO_COST

    def reading(self, source: JsonEvents) -> Reading:
        """All rows, and what is known to be missing."""
        lost = []
        if source.unread_bytes:
            lost.append(f"the last {source.unread_bytes} bytes hold no whole event: the file is cut short or damaged")
        if source.malformed:
            lost.append(f"{source.malformed} events could not be read")
        if self.timeless:
            lost.append(f"{self.timeless} events have no valid time")
        unmatched = self.unmatched + sum(len(stack) for stack in self.open.values())
        if unmatched:
            lost.append(f"{unmatched} begins and ends of events have no counterpart")
        jax = any(name.startswith(("/host:", "/device:")) for name in self.processes.values())
        if jax and self.seen >= JAX_LIMIT:
            lost.append(f"JAX's viewer file ends at {JAX_LIMIT:,} events: take the .xplane.pb beside it")
        torch = "schemaVersion" in source.beside
        if not self.parts:
            return Reading("chrome", "jax" if jax else "torch" if torch else "", frame({}, 0), lost=tuple(lost))
        found = {name: np.concatenate([part[name] for part in self.parts]) for name in self.parts[0]}
        self.parts.clear()
        kind, name, step = self._kinds(found)
        kept = kind != _DROPPED
        notes = [
            f"{count} events of the category {category or '(none)'!r} are left out"
            for category, count in self.left_out.items()
        ]
        device, track = self._places(found, kind)
        run = np.unique(found["run_id"], return_inverse=True)[1].astype(np.int64)
        run[found["run_id"] == -1] = -1
        text = self.interned.column
        columns = {
            "kind": text(kind[kept]),
            "name": text(name[kept]),
            "op": text(found["op"][kept]),
            "scope": text(found["scope"][kept]),
            "program": text(found["program"][kept]),
            "device": text(device[kept]),
            "track": text(track[kept]),
            "step": step[kept],
            "run": run[kept],
            **{
                each: found[each][kept]
                for each in ("ts_ns", "dur_ns", "program_id", "correlation", "external_id", "sequence_nr")
            },
            "flops": found["flops"][kept],
            "bytes": found["bytes"][kept],
        }
        return Reading(
            "chrome",
            "jax" if jax else "torch" if torch else "",
            frame(columns, int(kept.sum())),
            forward_thread=found["forward_thread"][kept],
            lost=tuple(lost),
            notes=tuple(notes),
        )

    def _kinds(self, found: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Kind and name of each row, as numbers of texts, and its step; rows that are left out are `_DROPPED`."""
        code, values = self.interned.code, self.interned.values
        category, name = found["cat"], found["name"].copy()
        kind = np.full(len(category), _DROPPED, np.int32)
        for each in np.unique(category).tolist():
            if kept := _kind_of(values()[each]):
                kind[category == each] = code(kept)
        modules = self.interned.matching(name, lambda text: text.startswith(_MODULE))
        scope, step = code("scope"), np.full(len(kind), -1)
        kind[modules & (category == code("python_function"))] = scope
        for each in np.unique(name[modules]).tolist():
            name[name == each] = code(values()[each].removeprefix(_MODULE))
        for each in np.unique(name[kind == scope]).tolist():
            if match := _STEP.match(values()[each]):
                chosen = (name == each) & (kind == scope)
                kind[chosen], step[chosen] = code("step"), int(match[1])
            elif _COLLECTIVE.match(values()[each]):
                kind[(name == each) & (kind == scope)] = code("op")
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
        on_device = any(_DEVICE.match(process) for process in self.processes.values())
        for place in np.unique(found["place"]).tolist():
            process, thread = self._names(place)
            rows = found["place"] == place
            if not _DEVICE.match(process):
                kind[rows & (found["op"] > 0)] = code("runtime" if on_device else "op")
                kind[rows & (found["op"] == 0)] = code("runtime")
            elif _STREAM.search(thread):
                kind[rows] = code("kernel")
                kind[rows & self.interned.matching(found["name"], _COPY.search)] = code("copy")
            else:
                kind[rows] = _DROPPED

    def _places(self, found: dict[str, np.ndarray], kind: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Device and track of each row: an accelerator's stream, or a thread of the host."""
        code = self.interned.code
        on_device = np.isin(kind, [code("kernel"), code("copy")])
        values = self.interned.values()
        processes = {
            value.partition("\0")[0] for value in (values[each] for each in np.unique(found["place"]).tolist())
        }
        keys = np.stack([found["place"], found["device"], found["stream"], on_device.astype(np.int32)], axis=1)
        unique, inverse = np.unique(keys, axis=0, return_inverse=True)
        devices, tracks = [], []
        for place, index, stream, accelerated in unique.tolist():
            process, thread = self._names(place)
            pid, _, tid = values[place].partition("\0")
            if accelerated:
                match, number = _DEVICE.match(process), _STREAM.search(thread)
                devices.append(code(f"{match[1].lower()}:{match[2]}" if match else f"gpu:{values[index] or pid}"))
                tracks.append(code(f"stream {number[1] if number else values[stream] or tid}"))
            else:
                devices.append(code("cpu"))
                named = thread or f"thread {tid}"
                tracks.append(code(named if len(processes) < 2 else f"process {pid} {named}"))
        return np.array(devices, np.int32)[inverse], np.array(tracks, np.int32)[inverse]

    def _names(self, place: int) -> tuple[str, str]:
        """Names of the process and the thread of a place."""
        pid, _, tid = self.interned.values()[place].partition("\0")
        return self.processes.get(pid, ""), self.threads.get((pid, tid), "")


_DROPPED = -1
_NO_COST = (float("nan"), float("nan"))


def _kind_of(category: str) -> str | None:
    """What events of a category (in lower case) are; None where they are left out."""
    if category.endswith(("_runtime", "_driver")):
        return "runtime"
    if category in _COPIES_OF_OTHERS or category == "python_function":
        return None
    return _KINDS.get(category, "op")


def _key(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)


def _text(value: Any) -> str:
    return value if type(value) is str else repr(value)


def _integers(values: list[Any]) -> np.ndarray:
    """Values as int64, -1 for what is none; texts of digits count as numbers."""
    if values.count(None) == len(values):
        return np.full(len(values), -1)
    try:
        return np.array([-1 if value is None else value for value in values], np.int64)
    except (ValueError, TypeError, OverflowError):
        return np.array([_integer(value) for value in values], np.int64)


def _integer(value: Any) -> int:
    try:
        number = int(value)
    except (ValueError, TypeError, OverflowError):
        return -1
    return number if -(1 << 63) <= number < 1 << 63 else -1


def _times(slices: list[Slice]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Begins and durations in ns, and which of them are times at all: numbers, not negative, of less than 146 years."""
    try:
        ts, dur = (np.array(values, float) for values in zip(*((each.ts, each.dur) for each in slices), strict=True))
        exact = type(slices[0].ts) not in (float, int)
    except (ValueError, TypeError, OverflowError):
        pairs = [(_microseconds(each.ts), _microseconds(each.dur)) for each in slices]
        ts, dur = np.array(pairs, float).T
        exact = False
    with np.errstate(invalid="ignore"):
        valid = (ts >= 0) & (ts < _LATEST_US) & (dur >= 0) & (dur < _LATEST_US)
    if exact:
        ns = [
            (int(each.ts * 1000), int(each.dur * 1000)) if good else (0, 0)
            for each, good in zip(slices, valid, strict=True)
        ]
        begin, length = np.array(ns, np.int64).reshape(-1, 2).T
        return begin, length, valid
    return _nanoseconds(np.where(valid, ts, 0)), _nanoseconds(np.where(valid, dur, 0)), valid


_LATEST_US = float(1 << 62) / 1000


def _microseconds(value: Any) -> float:
    """A time, NaN where it is none; texts of numbers count."""
    try:
        return float(value) if not isinstance(value, bool) else float("nan")
    except (ValueError, TypeError, OverflowError):
        return float("nan")


def _nanoseconds(microseconds: np.ndarray) -> np.ndarray:
    """Whole ns; the whole µs are taken apart first, so that no digit of a large time is lost."""
    whole = np.floor(microseconds)
    found: np.ndarray = whole.astype(np.int64) * 1000 + np.rint((microseconds - whole) * 1000).astype(np.int64)
    return found
