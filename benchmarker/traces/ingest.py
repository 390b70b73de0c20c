"""Read a trace file into an event table, and summarise it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd

from benchmarker.api.errors import UserError
from benchmarker.formatting import count
from benchmarker.records.profile import DeviceTime, Kernel, Scope, Trace
from benchmarker.traces.attribution.attribute import Attributed, attribute
from benchmarker.traces.attribution.categories import UNCATEGORISED
from benchmarker.traces.attribution.graphs import BEGIN, GRAPH, with_capture, without_capture
from benchmarker.traces.attribution.nesting import union_ns
from benchmarker.traces.covered import Covered
from benchmarker.traces.events import ON_DEVICE, codes, grouped, words
from benchmarker.traces.formats import chrome, databases, rocprof, xplane
from benchmarker.traces.formats.aten_cost import Causal
from benchmarker.traces.formats.reading import Reading
from benchmarker.traces.formats.source import Source
from benchmarker.traces.formats.wire import WireError
from benchmarker.traces.scopes import scopes
from benchmarker.traces.statistics import describe, work

COMMUNICATION = "communication"
_LONGEST_NS = 1 << 61
"""Sums of longer times are not exact, or do not fit into 64 bits."""
_MOST_DEVICES = 4096
_REPORTS = (".nsys-rep", ".qdrep")
"""Nsight Systems' own files, whose format is not public."""
_SEEN = 512
"""Bytes of a file that are looked at to tell whether it is text."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What is known about a trace before it is read: how often a step enters each scope, and how it was recorded.

    `causal` is how the FLOPs of causal attention are to be counted.
    """

    scopes: Mapping[str, int] = field(default_factory=dict)
    separable: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)
    causal: Causal = "half"


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
    return Ingested(found.events, _trace(reading, found, steps, each_scope, expected), each_scope)


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
    if not first.startswith(databases.MAGIC) and (what := foreign(first)):
        raise UserError(
            f"{path}: {what}, not a trace; a trace is an .xplane.pb file of JAX, JSON with traceEvents, "
            "or a database or CSV of Nsight Systems or rocprofv3"
        )
    try:
        if first.startswith(databases.MAGIC):
            reading = databases.read(path)
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
    if reading.events["dur_ns"].to_numpy().astype(float).sum() > _LONGEST_NS:
        raise UserError(f"{path}: its events add up to more than 73 years: the times are not those of a trace")
    if reading.events["device"].nunique() > _MOST_DEVICES:
        raise UserError(f"{path}: its events name more than {_MOST_DEVICES} devices: this is not a trace")
    if source.cut_short:
        return replace(reading, lost=(*reading.lost, "the compressed file is cut short"))
    return reading


def foreign(first: bytes) -> str:
    """What a file is that begins with these bytes and can be no trace; empty if it may be one."""
    if first.startswith(databases.MAGIC):
        return databases.OTHER
    beginning = first[:_SEEN]
    text = beginning.decode("utf-8", "ignore")
    is_text = len(text.encode()) > len(beginning) - 4 and all(char.isprintable() or char.isspace() for char in text)
    return "a text file" if is_text and not rocprof.is_file(first) and first.lstrip()[:1] not in (b"{", b"[") else ""


def _steps(events: pd.DataFrame) -> list[int]:
    """Durations of the steps, in order."""
    rows = events[events["kind"] == "step"]
    return [int(longest) for longest in rows.groupby("step")["dur_ns"].max()]


def _trace(reading: Reading, found: Attributed, steps: list[int], each_scope: list[Scope], expected: Expected) -> Trace:
    events = found.events
    rows = work(events)
    devices = list(_devices(events, rows))
    whole = [each for each in devices if not each.track]
    uneven = _uneven(rows)
    moving, hidden = _communication(rows)
    missing = [*reading.lost, *_missing(found, uneven, each_scope, reading)]
    return Trace(
        format=reading.format,
        framework=reading.framework,
        separable=expected.separable,
        variables=dict(expected.variables),
        rows=len(events),
        kernels=len(rows),
        steps=len(steps),
        step_ns=steps,
        wall_ns=max(each.wall_ns for each in whole),
        busy_ns=sum(each.busy_ns for each in whole),
        idle_ns=sum(each.idle_ns for each in whole),
        communication_ns=moving,
        hidden_ns=hidden,
        outside_ns=int(rows.loc[rows["leaf"] == "", "busy_ns"].sum()),
        uncategorised_ns=int(rows.loc[rows["category"] == UNCATEGORISED, "busy_ns"].sum()),
        unmatched_ops=found.unmatched_ops,
        unmatched_backward=found.unmatched_backward,
        unlaunched=found.unlaunched,
        overlapping=found.overlapping,
        uneven=uneven,
        devices=devices,
        missing=missing,
        notes=[*reading.notes, *_unknown(events, rows), *_restored(found), *_captured(rows)],
        complete=not missing,
        rank=reading.rank,
        world_size=reading.world_size,
    )


def _devices(events: pd.DataFrame, rows: pd.DataFrame) -> list[DeviceTime]:
    """Each device, and if it has several streams or threads, each of these."""
    all_ns = Covered.of(events, rows).wall_ns
    found = []
    for device, of_device in rows.groupby("device", observed=True):
        tracks = list(of_device.groupby("track", observed=True))
        busy = int(of_device["busy_ns"].sum())
        wall = max(all_ns, busy)
        found.append(DeviceTime(device, "", len(of_device), busy, wall - busy, wall))
        for track, chosen in tracks if len(tracks) > 1 else ():
            ran = union_ns(chosen["ts_ns"].to_numpy(), (chosen["ts_ns"] + chosen["dur_ns"]).to_numpy())
            found.append(DeviceTime(device, track, len(chosen), ran, wall - ran, wall))
    return found


def _unknown(events: pd.DataFrame, rows: pd.DataFrame) -> list[str]:
    """Describe the work whose op or phase is not known though its launch is."""
    op = (rows["op"] == "") & (rows["kind"] != "op") & (rows["parent_id"] >= 0) & ~_by_graph(events, rows)
    texts = []
    if op.any():
        texts.append(f"{int(op.sum())} kernels and copies ({_share(rows, op)}) were launched outside any op")
    phase = rows["phase"] == ""
    if phase.any() and not (share := _share(rows, phase)).startswith("0.0%"):
        texts.append(f"the phase of {share} is unknown")
    return texts


def _restored(found: Attributed) -> list[str]:
    """Describe the backward ops that have no forward op and therefore no scope."""
    if not found.restored:
        return []
    ops = count(found.restored, "backward op belongs", "backward ops belong")
    return [f"{ops} to no scope: autograd made AsStridedBackward for views of tensors that were changed in place"]


def _captured(rows: pd.DataFrame) -> list[str]:
    """Describe the rows whose op was found in the capture of their graph."""
    counts = {how: (rows["graph"] == how) for how in ("node", "order")}
    return [
        f"{int(chosen.sum())} kernels and copies of graphs ({_share(rows, chosen)}) have the op that was captured, "
        + ("joined by the nodes' numbers" if how == "node" else "joined by order")
        for how, chosen in counts.items()
        if chosen.any()
    ]


def _by_graph(events: pd.DataFrame, rows: pd.DataFrame) -> pd.Series:
    """Which rows are parts of graphs whose launch is in no op."""
    launching = np.array([bool(GRAPH.search(name)) for name in events["name"].cat.categories], bool)
    launch = rows["parent_id"].to_numpy()
    if not launching.any():
        return pd.Series(False, rows.index)
    return (rows["op"] == "") & (launch >= 0) & launching[codes(events["name"])][launch]


def _share(rows: pd.DataFrame, chosen: pd.Series) -> str:
    return f"{rows.loc[chosen, 'busy_ns'].sum() / max(1, rows['busy_ns'].sum()):.1%} of the busy time"


def _uneven(rows: pd.DataFrame) -> int:
    """Number of missing executions, compared with the run of the program in which each instruction ran most often."""
    run = rows[(rows["run"] >= 0) & (rows["op"] != "")]
    if not len(run):
        return 0
    program = grouped(codes(run["device"]), run["program_id"])[0]
    op = grouped(program, codes(run["op"]))[0]
    counts = pd.DataFrame({"op": op, "program": program, "run": run["run"].to_numpy()}).value_counts().reset_index()
    runs = counts.groupby("program")["run"].nunique()
    most = counts.groupby(["op", "program"])["count"].agg(["max", "sum"]).reset_index("program")
    return int((most["max"] * runs[most["program"]].to_numpy() - most["sum"]).sum())


def _communication(rows: pd.DataFrame) -> tuple[int, int]:
    """Time in which data moved between devices, and the part of it in which a device also computed, in ns."""
    moving = hidden = 0
    for _, of_device in rows.groupby("device", observed=True):
        moves = (of_device["category"] == COMMUNICATION).to_numpy()
        begin = of_device["ts_ns"].to_numpy()
        end = begin + of_device["dur_ns"].to_numpy()
        own = union_ns(begin[moves], end[moves])
        moving += own
        hidden += own + union_ns(begin[~moves], end[~moves]) - union_ns(begin, end)
    return moving, hidden


def _missing(found: Attributed, uneven: int, each_scope: list[Scope], reading: Reading) -> list[str]:
    """Describe what should be in the trace but is missing."""
    counted = {
        ("executed instruction is", "executed instructions are", "in no program of the trace"): found.unmatched_ops,
        ("backward op has", "backward ops have", "no forward op in the trace"): found.unmatched_backward,
        ("kernel or copy has", "kernels and copies have", "no launch in the trace"): found.unlaunched,
        (
            "execution is",
            "executions are",
            "missing, or the program branches: some instructions ran a different number of times in different runs",
        ): uneven,
    }
    missing = [f"{count(number, one, several)} {what}" for (one, several, what), number in counted.items() if number]
    expected = [each for each in each_scope if each.expected]
    if expected and not any(each.occurrences for each in expected):
        missing.append("none of the scopes is in the trace: a step that is compiled as a whole has no scopes")
    else:
        missing += [
            f"scope {each.scope} ran {count(each.occurrences or 0, 'time')} "
            f"but {count(each.expected or 0, 'was', 'were')} expected"
            for each in expected
            if each.occurrences != each.expected
        ]
    rows = found.events
    if (graphs := _by_graph(rows, work(rows))).any():
        missing.append(
            f"{int(graphs.sum())} kernels and copies ({_share(work(rows), graphs)}) were launched as graphs, "
            "which do not tell the op, scope and phase of each"
        )
    launches = ((rows["kind"] == "runtime") & (rows["correlation"] >= 0)).any()
    if reading.framework == "torch" and launches and not rows["kind"].isin(ON_DEVICE).any():
        missing.append("work was launched on a device, but no kernel is in the trace: all times are host times")
    if reading.framework == "jax" and not reading.programs:
        missing.append("the trace contains no program: only scopes that the events themselves name are known")
    return missing
