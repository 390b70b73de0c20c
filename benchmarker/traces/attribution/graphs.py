"""Graphs (of CUDA or HIP): the call that was captured for each kernel and copy that a graph launched later.

A call that launches a kernel while a stream is captured executes nothing: it adds a node to a graph. When the graph is
launched, its kernels name that launch only. CUPTI numbers the nodes as they are added; Kineto writes the number as
"graph node id" (libkineto/src/CudaMetadataFields.h).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from benchmarker.traces.attribution.categories import categorize
from benchmarker.traces.events import TEXTS, codes, frame, matching, texts_of, words
from benchmarker.traces.formats.reading import Reading

GRAPH = re.compile(r"graph_?launch", re.IGNORECASE)
"""Calls that launch a graph of kernels."""
HOW = ["", "node", "order"]
"""How a row of a graph was joined: by the numbers of the nodes, or by their order in time on one stream."""
BEGIN, _END = re.compile(r"StreamBeginCapture"), re.compile(r"StreamEndCapture")
"""Calls between which a graph is captured."""
_CALL = re.compile(r"Launch(?:Cooperative)?Kernel|Memcpy|Memset", re.IGNORECASE)
_KIND = re.compile(r"memcpy|copyBuffer|memset|fillBuffer", re.IGNORECASE)
_KINDS = {"memcpy": "copy", "copybuffer": "copy", "memset": "set", "fillbuffer": "set"}
_OF_CAPTURE = "capture: "
"""How the names of threads begin that are in a capture of its own."""
_PLAIN = {"gemm", "convolution", "attention", "communication", "normalisation", "softmax"}
"""Categories that a kernel's name states; a kernel of one does not belong to an op of another."""


def with_capture(reading: Reading, capture: Reading) -> Reading:
    """A trace that launches graphs, followed by the host's rows of the trace in which they were captured."""
    kept = capture.events[capture.events["kind"].isin(["op", "scope", "runtime"])]
    none = {name: np.full(len(kept), -1) for name in ("correlation", "external_id", "sequence_nr", "step")}
    kept = kept.assign(**none, track=[f"{_OF_CAPTURE}{track}" for track in kept["track"]])
    columns: dict[str, Any] = {}
    for name in reading.events:
        both = [reading.events[name], kept[name]]
        if name in TEXTS:
            texts = pd.concat([each.astype(object) for each in both])
            number, unique = pd.factorize(texts)
            columns[name] = words(number, list(unique))
        else:
            columns[name] = np.concatenate(both)
    rows = len(reading.events) + len(kept)
    extra: dict[str, Any] = {
        name: None if own is None else np.concatenate([own, np.full(len(kept), -1)])
        for name, own in (("forward_thread", reading.forward_thread), ("graph_node", reading.graph_node))
    }
    return replace(reading, events=frame(columns, rows), **extra)


def without_capture(events: pd.DataFrame, rows: int) -> pd.DataFrame:
    """The first `rows` rows, which are those of the trace itself; what refers to others is none."""
    own = events.iloc[:rows]
    return own.assign(scope_id=own["scope_id"].where(own["scope_id"] < rows, -1))


def captured_calls(
    events: pd.DataFrame, launch: np.ndarray, op: np.ndarray, scope: np.ndarray, node: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The captured call of each row that a graph launched (-1 for others), and how it was found, as an index of `HOW`.

    `launch`, `op`, `scope` and `node` are each row's launch, the rows of the op and the scope around it, and its node's
    number; -1 for none. All rows of a launch are joined, or none: they are, if their number and kinds, and the
    categories that their names state, fit exactly one capture, or several of the same ops.
    """
    call, how = np.full(len(events), -1), np.zeros(len(events), np.int32)
    names, name = events["name"].cat.categories, codes(events["name"])
    rows = np.flatnonzero((launch >= 0) & matching(events["name"], GRAPH.search)[launch])
    captures = _captures(events, launch, op, scope) if len(rows) else []
    if not captures:
        return call, how
    track, begin = codes(events["track"]), events["ts_ns"].to_numpy()
    known: dict[tuple[int, ...], np.ndarray | None] = {}
    rows = rows[np.argsort(launch[rows], kind="stable")]
    for each in np.split(rows, np.flatnonzero(np.diff(launch[rows])) + 1):
        numbered = len(np.unique(node[each])) == len(each) and (node[each] >= 0).all()
        if not numbered and len(np.unique(track[each])) > 1:
            continue
        ordered = each[np.argsort(node[each] if numbered else begin[each], kind="stable")]
        key = tuple(name[ordered].tolist())
        if key not in known:
            known[key] = _fitting(captures, [names[number] for number in key])
        if (calls := known[key]) is not None:
            call[ordered], how[ordered] = calls, HOW.index("node" if numbered else "order")
    return call, how


@dataclass(frozen=True, slots=True)
class _Capture:
    """The calls of a capture in order: their rows and names, and the op with its shapes and scope around each."""

    rows: np.ndarray
    names: list[str]
    ops: list[tuple[str, str, str]]


def _captures(events: pd.DataFrame, launch: np.ndarray, op: np.ndarray, scope: np.ndarray) -> list[_Capture]:
    """The captures; those that overlap are left out."""
    begin, parent = events["ts_ns"].to_numpy(), events["parent_id"].to_numpy()
    is_call = matching(events["name"], _CALL.search) & (events["kind"] == "runtime").to_numpy()
    is_call[launch[launch >= 0]] = False  # what executed was not captured
    is_call &= ~((parent >= 0) & is_call[parent])
    starts, ends = (np.sort(begin[matching(events["name"], pattern.search)]) for pattern in (BEGIN, _END))
    found = []
    for start, after in zip(starts, np.append(starts, np.iinfo(np.int64).max)[1:], strict=True):
        end = ends[(ends > start) & (ends < after)]
        if len(end) == 1:
            calls = np.flatnonzero(is_call & (begin > start) & (begin < end[0]))
            calls = calls[np.argsort(begin[calls], kind="stable")]
            around = (("name", op), ("shapes", op), ("name", scope))
            ops = [texts_of(events[column], rows[calls]).tolist() for column, rows in around]
            found.append(_Capture(calls, texts_of(events["name"], calls).tolist(), list(zip(*ops, strict=True))))
    return found


def _fitting(captures: Sequence[_Capture], names: Sequence[str]) -> np.ndarray | None:
    """The calls of the capture that fits a graph's kernels; None if none does, or several that differ."""
    found: dict[tuple[tuple[str, str, str], ...], np.ndarray] = {}
    for capture in captures:
        nodes = zip(capture.names, capture.ops, names, strict=False)
        if len(capture.rows) == len(names) and all(_fits(call, ran, name) for call, (ran, _, _), name in nodes):
            found.setdefault(tuple(capture.ops), capture.rows)
    return next(iter(found.values())) if len(found) == 1 else None


def _fits(call: str, op: str, name: str) -> bool:
    """Whether a captured call, within an op, can have added the node of a kernel or copy."""
    if _kind(call) != _kind(name):
        return False
    by_name, by_op = categorize(name=name, op="")[0], categorize(name="", op=op)[0]
    return by_name == by_op or not {by_name, by_op} <= _PLAIN


def _kind(name: str) -> str:
    match = _KIND.search(name)
    return _KINDS[match[0].lower()] if match else "kernel"
