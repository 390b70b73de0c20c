"""Traces in Chrome's JSON format, as written by PyTorch's profiler, JAX's trace viewer and other programs.

The format: "Trace Event Format", Google, 2016. The categories in PyTorch: libkineto's output_json.cpp.
"""

import re
from collections import Counter
from collections.abc import Iterator
from operator import attrgetter
from typing import Any

import numpy as np
import pandas as pd

from benchmarker.formatting import count
from benchmarker.traces.events import MEMORY, Texts, frame, grouped
from benchmarker.traces.formats.aten_cost import Causal
from benchmarker.traces.formats.json_args import ANNOTATION, Described, collective_columns
from benchmarker.traces.formats.json_events import (
    Args,
    JsonEvents,
    Slice,
    decimal_of,
    given_text,
    integers,
    numbers,
    text_of,
    times_ns,
)
from benchmarker.traces.formats.notation import COLLECTIVE_INTEGERS, COLLECTIVE_TEXTS
from benchmarker.traces.formats.reading import COPY, DEVICE, STREAM, Reading, divided_cpu

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
"""Kinds of events by lower-case category; a category that ends in `_runtime` or `_driver` is a runtime call."""
_AS_KERNELS = "mtia_ccp_events"
"""What MTIA's processors executed; left out if the file also has kernels, in which the same work is."""
_COPY_OF = re.compile(r"\w+_mem(cpy|set)$")
"""Categories of copies and sets on further accelerators."""
_COPIES_OF_OTHERS = {"gpu_user_annotation", "trace", "overhead", "ac2g", "fwdbwd", "async_gpu"}
"""Categories that repeat other events, or that show the profiler itself."""
_MODULE = "nn.Module: "
_ROCPROF = re.compile(
    r"(?:\d+ )?(?:(?P<api>CPU (?:HIP|HSA|KFD) API)|(?P<copy>COPY)|GPU(?P<gpu>\d+)|(?P<scope>Markers and Ranges))\b"
)
"""How rocprof names processes, with or without a number to sort them by; its events have no category."""
_OWN_SCOPE = re.compile(r"ProfilerStep#|Optimizer\.\w+#|enumerate\(DataLoader\)#")
"""Annotations that PyTorch makes itself; older versions give them the category of ops."""
_STEP = re.compile(r"ProfilerStep#(\d{1,18})$")
JAX_LIMIT = 1_000_000
"""JAX's viewer file silently ends at this many events (TF_PROFILER_TRACE_VIEWER_MAX_EVENTS raises the limit)."""
_ASYNCHRONOUS = set("bneSTpF")
_NO_DURATION = set("iIRCstfPNODVvc()=")
"""Events of the format that have no duration, by `ph`."""
CAUSAL: dict[Causal, str] = {
    "half": "FLOPs of causal attention count the products that the mask keeps, half of them all",
    "full": "FLOPs of causal attention count all products, as if there were no mask",
}
_SLICE_OR_ARROW = ("X", "s", "f")
"""The most frequent events by far: slices, and the ends of arrows between them."""
_INSTANT = set("iI")
_MOST_BYTES = 1 << 63
_MEMORY = "[memory]"
"""The name of PyTorch's events of allocated and freed memory."""
_CPU_TYPE = 0
"""The CPU among PyTorch's types of devices (c10/core/DeviceType.h)."""
_LONGEST, _MOST = 60, 12
"""Most characters of a category, and most categories, that a note shows."""
_NO_ARGS = Args()
_KEPT = ("ts_ns", "dur_ns", "program_id", "correlation", "external_id", "sequence_nr")
_INTEGERS = (
    "external_id",
    "sequence_nr",
    "forward_thread",
    "program_id",
    "run_id",
    "device_ordinal",
    "step_num",
    "graph_node",
)


def read(pieces: Iterator[bytes], causal: Causal = "half") -> Reading:
    """Read the rows of a trace. Raises `msgspec.DecodeError` if it is not a trace."""
    source = JsonEvents()
    table = _Rows(causal)
    for events in source.read(pieces):
        table.add(events)
    return table.reading(source)


class _Rows:
    """The growing columns of a table, and counts of what is not in it."""

    def __init__(self, causal: Causal) -> None:
        self.causal = causal
        self.interned = Texts()
        self.described = Described(self.interned, causal)
        self.parts: list[dict[str, np.ndarray]] = []
        self.processes: dict[Any, str] = {}
        self.threads: dict[Any, str] = {}
        self.open: dict[Any, list[Slice]] = {}
        self.thread_numbers: dict[tuple[str, str], int] = {}
        self.seen = self.timeless = self.unmatched = self.unknown = self.asynchronous = 0
        self.left_out: Counter[str] = Counter()
        self.rows = 0
        self.memory: list[tuple[int, Args]] = []

    def add(self, events: list[Slice]) -> None:
        """Add a list of events."""
        self.seen += len(events)
        slices = [event for event in events if event.ph == "X"]
        if slices:
            self._add_slices(slices)
        if len(slices) != len(events):
            paired = list(self._others(events))
            if paired:
                self._add_slices(paired)

    def _others(self, events: list[Slice]) -> Iterator[Slice]:
        """Store the names of processes and threads; join begin and end events into slices."""
        for event in events:
            if event.ph in _SLICE_OR_ARROW:
                continue
            if event.ph == "M":
                name = text_of((event.args or _NO_ARGS).name or "")
                if event.name == "process_name":
                    self.processes[text_of(event.pid)] = name
                elif event.name == "thread_name":
                    self.threads[text_of(event.pid), text_of(event.tid)] = name
            elif event.ph == "B":
                self.open.setdefault((text_of(event.pid), text_of(event.tid)), []).append(event)
            elif event.ph == "E":
                stack = self.open.get((text_of(event.pid), text_of(event.tid)))
                if not stack:
                    self.unmatched += 1
                    continue
                begun = stack.pop()
                begin, end = decimal_of(begun.ts), decimal_of(event.ts)
                begun.ts, begun.dur = begin, end - begin if begin is not None and end is not None else None
                yield begun
            elif not isinstance(event.ph, str):
                self.unknown += (
                    event.ph is not None or event.ts is not None or event.name != ""
                )  # JAX ends a file with {}
            else:
                if event.ph in _INSTANT:
                    if event.name == _MEMORY and event.args and _allocates(event.args):
                        event.dur = 0
                        yield event
                        continue
                    self.left_out["memory" if event.name == _MEMORY else "instant"] += 1
                self.asynchronous += event.ph in _ASYNCHRONOUS
                self.unknown += event.ph not in _ASYNCHRONOUS and event.ph not in _NO_DURATION

    def _add_slices(self, slices: list[Slice]) -> None:
        ts, dur, valid = times_ns(slices)
        if not valid.all():
            self.timeless += int((~valid).sum())
            slices = [each for each, good in zip(slices, valid.tolist(), strict=True) if good]
            ts, dur = ts[valid], dur[valid]
        args = [each.args or _NO_ARGS for each in slices]
        self.memory += [(self.rows + at, args[at]) for at, each in enumerate(slices) if each.ph in _INSTANT]
        self.rows += len(slices)
        code = self.interned.code
        columns = {
            "name": numbers([each.name for each in slices], lambda value: code(text_of(value))),
            "cat": numbers([each.cat for each in slices], lambda value: code(text_of(value).lower())),
            "thread": self._numbered_threads(slices),
            "op": numbers([each.hlo_op for each in args], lambda value: code(text_of(value or ""))),
            "program": numbers([each.hlo_module for each in args], lambda value: code(text_of(value or ""))),
            "scope": numbers([each.name for each in args], lambda value: code(text_of(value or ""))),
            "device": numbers(
                [each.dev_id if each.device is None else each.device for each in args],
                lambda value: code(given_text(value)),
            ),
            "stream": numbers([each.stream for each in args], lambda value: code(given_text(value))),
        }
        columns |= {name: integers(list(map(attrgetter(name), args))) for name in _INTEGERS}
        if (columns["external_id"] < 0).all():
            columns["external_id"] = integers([each.older_external_id for each in args])
        columns["correlation"] = integers([each.correlation or each.correlation_id for each in args])
        columns |= self.described.columns(columns["name"], args)
        columns |= collective_columns(columns["name"], args, self.interned)
        self.parts.append(columns | {"ts_ns": ts, "dur_ns": dur})

    def _numbered_threads(self, slices: list[Slice]) -> np.ndarray:
        """The number of each event's process and thread."""
        texts: dict[str, int] = {}
        pid, tid = [each.pid for each in slices], [each.tid for each in slices]

        def number(value: Any) -> int:
            return texts.setdefault(text_of(value), len(texts))

        group, first = grouped(numbers(pid, number), numbers(tid, number))
        keys = [(text_of(pid[row]), text_of(tid[row])) for row in first.tolist()]
        found: np.ndarray = np.array(
            [self.thread_numbers.setdefault(key, len(self.thread_numbers)) for key in keys], np.int32
        )[group]
        return found

    def reading(self, source: JsonEvents) -> Reading:
        """All rows, and what is known to be missing."""
        lost = []
        if source.endless and not source.unread_bytes:
            lost.append("the list of events has no end: the file is cut short or damaged")
        if source.unread_bytes:
            lost.append(
                f"the last {source.unread_bytes} bytes contain no complete event: the file is cut short or damaged"
            )
        if source.malformed:
            lost.append(f"{count(source.malformed, 'event')} could not be read")
        if self.unknown:
            lost.append(f"{count(self.unknown, 'event has', 'events have')} an unknown type")
        if self.timeless:
            lost.append(f"{count(self.timeless, 'event has', 'events have')} no valid time")
        unmatched = self.unmatched + sum(len(stack) for stack in self.open.values())
        if unmatched:
            lost.append(f"{count(unmatched, 'begin or end event has', 'begin or end events have')} no counterpart")
        jax = any(name.startswith(("/host:", "/device:")) for name in self.processes.values())
        if jax and self.seen >= JAX_LIMIT:
            lost.append(f"JAX's viewer file ends at {JAX_LIMIT:,} events: use the .xplane.pb in the same folder")
        torch = "schemaVersion" in source.beside or "cpu_op" in self.interned.values()
        if not self.parts:
            return Reading("chrome", "jax" if jax else "torch" if torch else "", frame({}, 0), lost=tuple(lost))
        found = {name: np.concatenate([part.pop(name) for part in self.parts]) for name in list(self.parts[0])}
        kind, name, step = self._kinds(found, torch)
        memory = self._memory(name)
        wanted = kind != _DROPPED
        kept = slice(None) if wanted.all() else wanted
        if self.asynchronous:
            self.left_out["asynchronous"] += self.asynchronous
        notes = [_left_out(self.left_out)] if self.left_out else []
        if self.described.has_causal:
            notes.append(CAUSAL[self.causal])
        device, track = self._tracks_of(found, kind)
        device = divided_cpu(device, found["device_ordinal"], kind == self.interned.code("op"), self.interned)
        run = pd.factorize(found["run_id"], sort=True)[0]
        run[found["run_id"] == -1] = -1
        text = self.interned.column
        columns = {
            "kind": text(kind[kept]),
            "name": text(name[kept]),
            **{each: text(found.pop(each)[kept]) for each in ("op", "scope", "program", "shapes", "gemm")},
            **{each: text(found.pop(each)[kept]) for each in COLLECTIVE_TEXTS},
            "launch": text(np.where(kind == self.interned.code("kernel"), found.pop("launch"), 0)[kept]),
            "device": text(device[kept]),
            "track": text(track[kept]),
            "step": step[kept],
            "run": run[kept],
            **{each: found.pop(each)[kept] for each in (*_KEPT, *COLLECTIVE_INTEGERS)},
            **{each: found.pop(each)[kept] for each in ("flops", "bytes")},
            **{each: values[kept] for each, values in memory.items()},
        }
        return Reading(
            "chrome",
            "jax" if jax else "torch" if torch else "",
            frame(columns, int(wanted.sum())),
            forward_thread=found["forward_thread"][kept],
            graph_node=found["graph_node"][kept],
            lost=tuple(lost),
            notes=tuple(notes),
            rank=_stated(source.beside, "rank"),
            world_size=_stated(source.beside, "world_size"),
            device_names=_device_names(source.beside),
        )

    def _kinds(self, found: dict[str, np.ndarray], torch: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Kind and name of each row, as numbers of texts, and its step; the kind is `_DROPPED` for rows left out."""
        code, values, each_of = self.interned.code, self.interned.values, self.interned.translated
        category, name = found["cat"], found["name"].copy()
        kind = each_of(category, lambda text: code(kept) if (kept := _kind_of(text, torch)) else _DROPPED)
        if not (kind == code("kernel")).any():
            kind[category == code(_AS_KERNELS)] = code("kernel")
        modules = self.interned.matching(name, lambda text: text.startswith(_MODULE))
        scope, step = code("scope"), np.full(len(kind), -1)
        kind[modules & (category == code("python_function"))] = scope
        name[modules] = each_of(name[modules], lambda text: code(text.removeprefix(_MODULE)))
        kind[(kind == code("op")) & self.interned.matching(name, _OWN_SCOPE.match)] = scope
        scopes = np.flatnonzero(kind == scope)
        kind[scopes[self.interned.matching(name[scopes], ANNOTATION.match)]] = code("op")
        steps = scopes[self.interned.matching(name[scopes], _STEP.match)]
        kind[steps] = code("step")
        step[steps] = each_of(name[steps], lambda text: int(match[1]) if (match := _STEP.match(text)) else -1)
        if any(DEVICE.match(process) for process in self.processes.values()) or (found["op"] > 0).any():
            self._jax_kinds(found, kind)
            chosen = found["step_num"] >= 0
            kind[chosen], step[chosen] = code("step"), found["step_num"][chosen]
        if any(match["api"] or match["gpu"] for match in map(_ROCPROF.match, self.processes.values()) if match):
            self._rocprof_kinds(found, kind)
        kind[[row for row, _ in self.memory]] = code("memory")
        dropped, counts = np.unique(category[kind == _DROPPED], return_counts=True)
        for each, number in zip(dropped.tolist(), counts.tolist(), strict=True):
            self.left_out[values()[each]] += number
        return kind, name, step

    def _memory(self, name: np.ndarray) -> dict[str, np.ndarray]:
        """Name memory events by their device, and return their columns; no columns if there are none."""
        columns = {column: np.full(len(name), np.nan) for column in MEMORY if self.memory}
        for row, args in self.memory:
            name[row] = self.interned.code("cpu" if args.memory_type == _CPU_TYPE else f"gpu:{args.memory_number}")
            for column, values in columns.items():
                values[row] = getattr(args, column)
        return columns

    def _jax_kinds(self, found: dict[str, np.ndarray], kind: np.ndarray) -> None:
        """Set the kinds of a JAX file, where the process and the thread determine what an event is."""
        code = self.interned.code
        names = [self._names(pid, tid) for pid, tid in self.thread_numbers]
        device = np.array([bool(DEVICE.match(process)) for process, _ in names])[found["thread"]]
        stream = np.array([bool(STREAM.search(thread)) for _, thread in names])[found["thread"]]
        copy = self.interned.matching(found["name"], COPY.search)
        on_device = any(DEVICE.match(process) for process in self.processes.values())
        host_kind = np.where(found["op"] > 0, code("runtime" if on_device else "op"), code("runtime"))
        device_kind = np.where(stream, np.where(copy, code("copy"), code("kernel")), _DROPPED)
        kind[:] = np.where(device, device_kind, host_kind)

    def _rocprof_kinds(self, found: dict[str, np.ndarray], kind: np.ndarray) -> None:
        """Set the kinds of a file of rocprof, where the process determines what an event is."""
        code = self.interned.code
        copy = self.interned.matching(found["name"], COPY.search)
        for thread, (pid, _) in enumerate(self.thread_numbers):
            match = _ROCPROF.match(self.processes.get(pid, ""))
            if match:
                rows = found["thread"] == thread
                named = (
                    "kernel" if match["gpu"] else "copy" if match["copy"] else "scope" if match["scope"] else "runtime"
                )
                kind[rows] = code(named)
                kind[rows & copy & bool(match["gpu"])] = code("copy")

    def _tracks_of(self, found: dict[str, np.ndarray], kind: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Device and track of each row: an accelerator's stream, or a thread of the host."""
        code = self.interned.code
        on_device = np.isin(kind, [code("kernel"), code("copy")])
        values, threads = self.interned.values(), list(self.thread_numbers)
        one_process = len({pid for pid, _ in threads}) < 2
        alike = Counter((pid, self._names(pid, tid)[1]) for pid, tid in threads)
        only = {match["gpu"] for match in map(_ROCPROF.match, self.processes.values()) if match and match["gpu"]}
        keys = (found["thread"], found["device"], found["stream"], on_device)
        group, first = grouped(*keys, ordered=True)
        devices, tracks = [], []
        for place, index, stream, accelerated in zip(*(key[first].tolist() for key in keys), strict=True):
            pid, tid = threads[place]
            process, thread = self._names(pid, tid)
            if accelerated:
                match, named, rocprof = DEVICE.match(process), STREAM.search(thread), _ROCPROF.match(process)
                number = (rocprof["gpu"] if rocprof else "") or values[index] or (min(only) if len(only) == 1 else pid)
                devices.append(code(f"{match[1].lower()}:{match[2]}" if match else f"gpu:{number}"))
                track = f"stream {named[1] if named else values[stream] or tid}"
                tracks.append(code(f"copies {tid}" if rocprof and rocprof["copy"] else track))
            else:
                devices.append(code("cpu"))
                label = thread if thread and alike[pid, thread] == 1 else f"{thread or 'thread'} {tid}"
                tracks.append(code(label if one_process else f"process {pid} {label}"))
        return np.array(devices, np.int32)[group], np.array(tracks, np.int32)[group]

    def _names(self, pid: str, tid: str) -> tuple[str, str]:
        """Names of a process and a thread."""
        return self.processes.get(pid, ""), self.threads.get((pid, tid), "")


_DROPPED = -1


def _allocates(args: Args) -> bool:
    """Whether the arguments are those of a memory event."""
    numbers = (*(getattr(args, name) for name in MEMORY), args.memory_type, args.memory_number)
    return all(type(number) is int and abs(number) < _MOST_BYTES for number in numbers)


def _kind_of(category: str, torch: bool) -> str | None:
    """Kind of the events of a lower-case category; None if they are left out, like unknown categories of PyTorch."""
    if category.endswith(("_runtime", "_driver")):
        return "runtime"
    if category in _COPIES_OF_OTHERS or category == "python_function":
        return None
    if _COPY_OF.match(category):
        return "copy"
    return _KINDS.get(category, None if torch else "op")


def _stated(beside: dict[str, Any], name: str) -> int | None:
    """A number that PyTorch states beside the events about the distributed program."""
    stated = beside.get("distributedInfo")
    number = int(integers([stated.get(name) if isinstance(stated, dict) else None])[0])
    return number if number >= 0 else None


def _device_names(beside: dict[str, Any]) -> tuple[str, ...]:
    """The names of the accelerators that PyTorch states beside the events."""
    stated = beside.get("deviceProperties")
    names = [each.get("name") for each in stated if isinstance(each, dict)] if isinstance(stated, list) else []
    return tuple(dict.fromkeys(name for name in names[:_MOST] if isinstance(name, str)))


def _left_out(counts: Counter[str]) -> str:
    """How many events of which categories are not in the table."""
    texts = [f"{number} {category[:_LONGEST] or '(no category)'}" for category, number in counts.most_common(_MOST)]
    more = len(counts) - len(texts)
    return f"events left out: {', '.join(texts)}{f', and {more} more categories' if more else ''}"
