"""Read a trace file into an event table."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd

from benchmarker.api.errors import UserError
from benchmarker.api.problem import Collective
from benchmarker.records.profile import Kernel, Scope, Trace
from benchmarker.traces.attribution.attribute import attribute
from benchmarker.traces.attribution.graphs import BEGIN, GRAPH, with_capture, without_capture
from benchmarker.traces.events import ON_DEVICE, words
from benchmarker.traces.formats import chrome, nsys, rocprof, xplane
from benchmarker.traces.formats.aten_cost import Causal
from benchmarker.traces.formats.reading import SQLITE, Database, Reading, Source, opened
from benchmarker.traces.formats.wire import WireError
from benchmarker.traces.statistics import describe, work
from benchmarker.traces.summary import scopes, summary

LONGEST_NS = 1 << 61
"""Sums of longer times are not exact, or do not fit into 64 bits."""
_EXACT_NS = 1 << 53
"""Shares of a longer time, which are floats, are not exact to the ns."""
_MOST_DEVICES = 4096
_REPORTS = (".nsys-rep", ".qdrep")
"""Nsight Systems' own files, whose format is not public."""
_NO_PROFILE = "an SQLite database, but of neither Nsight Systems (nsys export --type=sqlite) nor rocprofv3 (rocpd)"
_SEEN = 512
"""Bytes of a file that are looked at to tell whether it is text."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What is known about a trace before it is read: how often a step enters each scope, and how it was recorded.

    `collectives` are those of a step by formula, if the problem says anything of them. `causal` is how the FLOPs of
    causal attention are to be counted. `device` is the name of the devices, which counts if the trace states none.
    """

    scopes: Mapping[str, int] = field(default_factory=dict)
    separable: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)
    collectives: Sequence[Collective] | None = None
    causal: Causal = "half"
    device: str = ""


@dataclass(frozen=True, slots=True)
class Ingested:
    """An event table, its summary and its scopes."""

    events: pd.DataFrame
    trace: Trace
    scopes: list[Scope]

    def kernels(self) -> list[Kernel]:
        """Statistics of rows by name, op, category, scope and phase, the longest time first.

        Rows with known FLOPs or bytes have a line of their own.
        """
        rows = work(self.events)
        known = (np.isfinite(rows["flops"]) + 2 * np.isfinite(rows["bytes"])).to_numpy()
        rows = rows.assign(known=words(known, ["", "flops", "bytes", "both"]))
        by = ["name", "op", "category", "rule", "leaf", "phase", "known"]
        table = describe(rows, by).rename(columns={"leaf": "scope"})
        table = table.astype({"flops": object, "bytes": object})
        table = table.where(table.notna(), None)[list(Kernel.__struct_fields__)]
        return msgspec.convert(table.to_dict("records"), list[Kernel])


def ingest(path: Path, expected: Expected | None = None, capture: Path | None = None) -> Ingested:
    """Read a trace file of any known format. Raises `UserError` if it is not a trace.

    `capture` is a trace of PyTorch in which the graphs were captured that the trace launches.
    """
    expected = expected or Expected()
    reading = read(path, expected.causal)
    if expected.device and not reading.device_names:
        reading = replace(reading, device_names=(expected.device,))
    rows = len(reading.events)
    if capture:
        reading = with_capture(reading, _capture(path, reading, capture, expected.causal))
    found = attribute(reading, expected.scopes.keys())
    if capture:
        found = replace(found, events=without_capture(found.events, rows))
    if not len(work(found.events)):
        raise UserError(f"{path}: it contains no kernel and no op" + "".join(f"; {each}" for each in reading.lost))
    steps = _steps(found.events)
    each_scope = scopes(found.events, len(steps), expected.scopes)
    trace = summary(reading, found, steps, each_scope, separable=expected.separable, variables=expected.variables)
    if max(device.busy_ns for device in trace.devices) > _EXACT_NS:
        raise UserError(f"{path}: a device worked for more than 104 days: the times are not those of a trace")
    return Ingested(found.events, trace, each_scope)


def _capture(path: Path, reading: Reading, capture: Path, causal: Causal) -> Reading:
    """Read the trace of a capture. Raises `UserError` if it has none, or if the trace launches no graph."""
    if not _names(reading, GRAPH) or not reading.events["kind"].isin(ON_DEVICE).any():
        raise UserError(f"{path}: it launches no graph; leave --capture out")
    found = read(capture, causal)
    if not _names(found, BEGIN):
        raise UserError(f"{capture}: it contains no capture of a graph (a call of StreamBeginCapture)")
    return found


def _names(reading: Reading, pattern: re.Pattern[str]) -> bool:
    """Whether any row has a name that contains a pattern."""
    return any(pattern.search(name) for name in reading.events["name"].cat.categories)


def read(path: Path, causal: Causal = "half") -> Reading:
    """Read the rows of a trace file; its first bytes determine the format."""
    source = Source(path)
    pieces = source.pieces()
    first = next(pieces, b"")
    if not first:
        raise UserError(f"{path}: {'the compressed file is cut short' if source.cut_short else 'an empty file'}")
    if path.suffix in _REPORTS:
        raise UserError(f"{path}: a report of Nsight Systems; export it first: nsys export --type=sqlite {path}")
    if rocprof.is_json(first):
        raise UserError(f"{path}: {rocprof.JSON}")
    if not first.startswith(SQLITE) and (what := foreign(first)):
        raise UserError(
            f"{path}: {what}, not a trace; a trace is an .xplane.pb file of JAX, JSON with traceEvents, "
            "or a database or CSV of Nsight Systems or rocprofv3"
        )
    try:
        if first.startswith(SQLITE):
            reading = _read_database(path)
        elif rocprof.is_file(first):
            reading = rocprof.read_files(path)
        elif first.lstrip()[:1] in (b"{", b"["):
            reading = chrome.read(chain([first], pieces), causal)
        else:
            reading = xplane.read(b"".join(chain([first], pieces)))
    except WireError as error:
        raise UserError(
            f"{path}: not a trace in XPlane or Chrome JSON format, or the file is cut short: {error}"
        ) from None
    except msgspec.DecodeError as error:
        raise UserError(f"{path}: not a trace in Chrome JSON format: {error}") from None
    if reading.events["dur_ns"].to_numpy().astype(float).sum() > LONGEST_NS:
        raise UserError(f"{path}: its events add up to more than 73 years: the times are not those of a trace")
    if reading.events["device"].nunique() > _MOST_DEVICES:
        raise UserError(f"{path}: its events name more than {_MOST_DEVICES} devices: this is not a trace")
    if source.cut_short:
        return replace(reading, lost=(*reading.lost, "the compressed file is cut short"))
    return reading


def _read_database(path: Path) -> Reading:
    """Read the rows of a database. Raises `UserError` if it is damaged or of no known profiler."""
    with opened(path) as database:
        if read_tables := _reader(database):
            return read_tables(database)
    raise UserError(f"{path}: {_NO_PROFILE}; it is no trace")


def _reader(database: Database) -> Callable[[Database], Reading] | None:
    """What reads the databases of the profiler that wrote this one; None if that is no known profiler."""
    return nsys.read if nsys.has_tables(database) else rocprof.read if rocprof.has_tables(database) else None


def is_profile(path: Path) -> bool:
    """Whether a database is one of a profiler."""
    try:
        with opened(path) as database:
            return _reader(database) is not None
    except UserError:
        return False


def foreign(first: bytes) -> str:
    """What a file is that begins with these bytes and can be no trace; empty if it may be one."""
    if first.startswith(SQLITE):
        return _NO_PROFILE
    if rocprof.is_json(first):
        return rocprof.JSON
    beginning = first[:_SEEN]
    text = beginning.decode("utf-8", "ignore")
    is_text = len(text.encode()) > len(beginning) - 4 and all(char.isprintable() or char.isspace() for char in text)
    return "a text file" if is_text and not rocprof.is_file(first) and first.lstrip()[:1] not in (b"{", b"[") else ""


def _steps(events: pd.DataFrame) -> list[int]:
    """Durations of the steps, in order."""
    rows = events[events["kind"] == "step"]
    return [int(longest) for longest in rows.groupby("step")["dur_ns"].max()]
