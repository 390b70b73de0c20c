"""Attribute the rows of a trace file: which row launched which, the scope of each row, and its own running time.

On the host, a row's scopes are the scope rows that enclose it on its thread. A kernel has the scopes of the call that
launched it, and a transfer of gloo those of the call that asked for it. A row of the backward pass has the scopes of
its forward op. If the file contains the program, as JAX's files do, the scopes are those of the instruction itself.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from benchmarker.traces.attribution.categories import UNCATEGORISED, categorize
from benchmarker.traces.attribution.collectives import calls_of, meetings_ns, with_calls, with_collectives
from benchmarker.traces.attribution.costs import counted_once, without_impossible
from benchmarker.traces.attribution.graphs import HOW, captured_calls
from benchmarker.traces.attribution.instructions import completed, from_programs
from benchmarker.traces.events import Kinds, codes, grouped, matching, words
from benchmarker.traces.formats.reading import CPU, Reading
from benchmarker.traces.intervals import Nest, busy, enclosed, inherit, nest

_LONGEST_PATH = 4096
"""Characters of a path to which another scope is added; a longer path is replaced by an ellipsis first."""


_OPTIMIZER = "Optimizer.step#"
"""The scope around an optimizer's step begins with this."""


@dataclass(frozen=True, slots=True)
class Attributed:
    """The event table, and counts of the problems found.

    `unmatched_ops` are executed ops that are in no program of the file. `unmatched_backward` are backward ops whose
    forward op is not in the file, `restored` those of autograd itself, which have none. `unlaunched` are device rows
    whose launch is not in the file. `overlapping` are rows that begin within another row and end after it. `notes` tell
    what was left out.
    """

    events: pd.DataFrame
    unmatched_ops: int
    unmatched_backward: int
    restored: int
    unlaunched: int
    overlapping: int
    notes: tuple[str, ...] = ()


def attribute(reading: Reading, known: Collection[str] = ()) -> Attributed:
    """Attribute a file's rows; of nested scopes the innermost counts, or the innermost in `known` if it has any."""
    events = reading.events
    if not len(events):
        return Attributed(events, 0, 0, 0, 0, 0)
    kind = Kinds(events)
    begin, end = events["ts_ns"].to_numpy(), (events["ts_ns"] + events["dur_ns"]).to_numpy()
    nested = _nest_hosts(events, kind, begin, end)
    call = calls_of(events)
    launch = np.where(call >= 0, call, _launches(events, kind))
    parent = np.where(launch >= 0, launch, nested.parent)
    rows = np.arange(len(events))
    op_row = inherit(nested.parent, np.where(kind.op, rows, -1))
    forward, unmatched_backward, restored = forward_rows(events, reading, nested)
    phase = phases(events, reading, nested)
    counting = kind.scope & events["name"].isin(known).to_numpy() if known else kind.scope
    scope_row = scope_rows(nested, counting, forward)
    node = np.full(len(events), -1) if reading.graph_node is None else reading.graph_node
    captured, how = captured_calls(events.assign(parent_id=parent), launch, op_row, scope_row, node)
    source = np.where(captured >= 0, captured, launch)  # the call that tells what a device row is
    launched = launch >= 0
    for found in (op_row, phase, scope_row):
        found[launched] = found[source[launched]]
    phase[kind.on_device & ~launched] = UNKNOWN
    step = _steps(events, kind, begin, launch)
    paths = _paths(events, nested, kind)
    columns: dict[str, Any] = {
        "parent_id": parent,
        "step": step,
        "phase": words(phase, PHASES),
        "op": _ops(events, kind, op_row, source),
        "graph": words(how, HOW),
        "shapes": _shapes(events, kind, op_row),
        "scope_id": scope_row,
        **({} if reading.is_of_xla else {"scope": words(paths.of[scope_row], paths.texts)}),
    }
    for column in ("program_id", "run"):
        values = events[column].to_numpy()
        columns[column] = np.where(launched & (values < 0), values[launch], values)
    events = events.assign(**columns)
    unmatched_ops = 0
    if reading.is_of_xla:
        events, unmatched_ops = from_programs(events, reading.programs, kind, known)
        events = events.assign(end_ns=completed(events, reading.programs, kind.work))
    else:
        texts = [*events["name"].cat.categories, ""]
        events["leaf"] = words(np.where(scope_row >= 0, codes(events["name"])[scope_row], len(texts) - 1), texts)
        events["purity"] = 1.0
    events = with_calls(events, call, nested)
    kind = Kinds(events)
    _categorise(events, kind, _optimizing(events, nested, kind, source))
    events = with_collectives(events, kind.on_device)
    events["waiting_ns"] = meetings_ns(events, nested)
    events = counted_once(_timed(events, kind, nested), nested, source, kind.on_device)
    events, note = without_impossible(events, kind.work, reading.device_names)
    unlaunched = int((kind.on_device & (launch < 0) & (events["op"] == "").to_numpy()).sum())
    notes = (note,) if note else ()
    return Attributed(events, unmatched_ops, unmatched_backward, restored, unlaunched, nested.overlapping, notes)


def _nest_hosts(events: pd.DataFrame, kind: Kinds, begin: np.ndarray, end: np.ndarray) -> Nest:
    """Nest the rows of each thread; the rows of a device's streams enclose nothing.

    The devices that a CPU is divided into share its threads.
    """
    hosts = np.flatnonzero(~kind.on_device)
    names = events["device"].cat.categories
    device = words(codes(events["device"]), ["cpu" if CPU.match(name) else name for name in names])
    thread = grouped(device.codes[hosts], codes(events["track"])[hosts])[0]
    within = nest(thread, begin[hosts], end[hosts])
    parent, level = np.full(len(events), -1), np.zeros(len(events), np.int32)
    has = within.parent >= 0
    parent[hosts[has]] = hosts[within.parent[has]]
    level[hosts] = within.level
    return Nest(parent, level, within.overlapping)


def _launches(events: pd.DataFrame, kind: Kinds) -> np.ndarray:
    """The launch of each device row: the call with its correlation, or the op with its external ID; -1 for neither."""
    launch = np.full(len(events), -1)
    for column, callers in (("correlation", kind.runtime), ("external_id", kind.op | kind.scope)):
        numbers = events[column].to_numpy()
        wanting = np.flatnonzero(kind.on_device & (launch < 0) & (numbers >= 0))
        launch[wanting] = _first_with(numbers, np.flatnonzero(callers & (numbers >= 0)), numbers[wanting])
    return launch


def _first_with(numbers: np.ndarray, rows: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The first of `rows` that has each wanted number; -1 if none has."""
    if not len(rows):
        return np.full(len(wanted), -1)
    order = rows[np.argsort(numbers[rows], kind="stable")]
    at = np.minimum(np.searchsorted(numbers[order], wanted), len(order) - 1)
    return np.where(numbers[order[at]] == wanted, order[at], -1)


@dataclass(frozen=True, slots=True)
class _Paths:
    """The path of each scope row, as an index into `texts`; rows that are not scopes have the empty path."""

    of: np.ndarray
    texts: list[str]


def _paths(events: pd.DataFrame, nested: Nest, kind: Kinds) -> _Paths:
    scopes = np.flatnonzero(kind.scope)
    of = np.zeros(len(events) + 1, np.int32)  # the last element is for row -1
    names = events["name"].cat.categories
    name = codes(events["name"])
    above = inherit(nested.parent, np.where(kind.scope, np.arange(len(events)), -1))
    known: dict[tuple[int, int], int] = {}
    texts = [""]
    for row in scopes[np.argsort(nested.level[scopes], kind="stable")].tolist():
        outer = of[above[nested.parent[row]]] if nested.parent[row] >= 0 else 0
        key = (int(outer), int(name[row]))
        if key not in known:
            known[key] = len(texts)
            above_it = texts[outer] if len(texts[outer]) < _LONGEST_PATH else "…"
            texts.append(f"{above_it}/{names[key[1]]}" if outer else str(names[key[1]]))
        of[row] = known[key]
    return _Paths(of, texts)


def _steps(events: pd.DataFrame, kind: Kinds, begin: np.ndarray, launch: np.ndarray) -> np.ndarray:
    """The step during which each row begins; for a device row, the step of its launch."""
    step = np.full(len(events), -1)
    rows = np.flatnonzero(kind.step)
    if len(rows):
        order = rows[np.argsort(begin[rows], kind="stable")]
        until = begin[order] + events["dur_ns"].to_numpy()[order]
        number = np.unique(events["step"].to_numpy()[order], return_inverse=True)[1]
        at = np.searchsorted(begin[order], begin, side="right") - 1
        inside = (at >= 0) & (begin < until[at])
        step[inside] = number[at[inside]]
        step[order] = number
    launched = launch >= 0
    step[launched] = step[launch[launched]]
    return step


def _ops(events: pd.DataFrame, kind: Kinds, op_row: np.ndarray, launch: np.ndarray) -> pd.Categorical:
    """The instruction that a row or its launch names, otherwise the op around it."""
    own = events["op"]
    names = events["name"]
    texts = [*own.cat.categories, *names.cat.categories]
    given = codes(own)
    has = (own != "").to_numpy()
    code = given.copy()
    around = ~has & (op_row >= 0)
    code[around] = len(own.cat.categories) + codes(names)[op_row[around]]
    launched = kind.on_device & ~has & (launch >= 0)
    named = launched & has[launch]
    code[named] = given[launch[named]]
    return words(code, texts)


def _shapes(events: pd.DataFrame, kind: Kinds, op_row: np.ndarray) -> pd.Categorical:
    """The shapes of each row; for a device row, those of the op that launched it."""
    texts = [*events["shapes"].cat.categories, ""]
    code = codes(events["shapes"])
    code[kind.on_device] = np.where(op_row >= 0, code[op_row], len(texts) - 1)[kind.on_device]
    return words(code, texts)


def _optimizing(events: pd.DataFrame, nested: Nest, kind: Kinds, launch: np.ndarray) -> np.ndarray:
    """Which rows an optimizer's step runs or launches, by the scope that `torch.optim` opens for it."""
    step = matching(events["name"], lambda name: name.startswith(_OPTIMIZER))
    if not step.any():
        return step
    found: np.ndarray = inherit(nested.parent, np.where(kind.scope & step, 1, -1)) > 0
    launched = kind.on_device & (launch >= 0)
    found[launched] = found[launch[launched]]
    return found


def _categorise(events: pd.DataFrame, kind: Kinds, optimizing: np.ndarray) -> None:
    """Add category and rule, if no program states them, by a row's name and op; equal ones are looked up once."""
    lacking = (kind.op | kind.on_device) & events["category"].isin(["", UNCATEGORISED]).to_numpy()
    name, op = codes(events["name"]), codes(events["op"])
    number, first = grouped(np.where(lacking, name, -1), np.where(lacking, 2 * op + optimizing, -1))
    names, ops = events["name"].cat.categories, events["op"].cat.categories
    found = [
        categorize(name=names[name[row]], op=ops[op[row]], optimizing=bool(optimizing[row]))
        if lacking[row]
        else ("", "")
        for row in first.tolist()
    ]
    for index, column in enumerate(("category", "rule")):
        texts = [*(each[index] for each in found), *events[column].cat.categories]
        events[column] = words(np.where(lacking, number, len(found) + codes(events[column])), texts)


def _timed(events: pd.DataFrame, kind: Kinds, nested: Nest) -> pd.DataFrame:
    """Add each row's own time, and for rows that are work, their share of the busy time."""
    begin = events["ts_ns"].to_numpy()
    duration = events["dur_ns"].to_numpy()
    own = duration - enclosed(begin, begin + duration, nested)
    share = np.full(len(events), -1)
    device = codes(events["device"])
    for each in np.unique(device[kind.work]).tolist():
        rows = np.flatnonzero(kind.work & (device == each))
        first, last = begin[rows], begin[rows] + duration[rows]
        within = None if kind.on_device.any() else nest(codes(events["track"])[rows], first, last)
        mine, tail = busy(first, last, events["end_ns"].to_numpy()[rows], within)
        share[rows] = np.diff(np.rint(np.cumsum(np.concatenate([[0.0], mine + tail])))).astype(np.int64)
        if within is not None:
            own[rows] = duration[rows] - enclosed(first, last, within) + np.rint(tail).astype(np.int64)
    return events.assign(self_ns=np.maximum(own, 0), busy_ns=share)


PHASES = ["forward", "backward", "remat", ""]
FORWARD, BACKWARD, REMAT, UNKNOWN = range(4)
"""Indices of the phases in `PHASES`."""
_NODE = re.compile(r"autograd::engine::evaluate_function|.*(?:Backward\d*$|(?:_|::)backward(?:_|$))")
"""Names of ops of the backward pass: the autograd engine's nodes, their functions, and the ops made for them."""


_SLICES = "CopySlices"
"""How the name of a node ends that copies the gradient of a part of a tensor."""

_RESTORED = re.compile(r"\bAsStridedBackward\d*$")
"""Nodes that PyTorch makes when a view is used whose base was changed in place; they have no forward op."""


def forward_rows(events: pd.DataFrame, reading: Reading, nested: Nest) -> tuple[np.ndarray, int, int]:
    """The forward row of each backward row (-1 for all other rows), how many were not found, and how many have none.

    Both rows have a sequence number, which each thread counts separately. The backward row also has the profiler's own
    number of the forward thread. This number is assigned to the thread on which most of its rows find their partner.
    """
    forward = np.full(len(events), -1)
    if reading.forward_thread is None:
        return forward, 0, 0
    sequence = events["sequence_nr"].to_numpy()
    thread = reading.forward_thread
    begin, track = events["ts_ns"].to_numpy(), codes(events["track"])
    backward = np.flatnonzero((thread > 0) & (sequence >= 0))
    if not len(backward):
        return forward, 0, 0
    inside = inherit(nested.parent, np.where(thread > 0, 1, -1)) >= 0
    candidates = np.flatnonzero((thread <= 0) & (sequence >= 0))
    # The last forward row with a number is the one that made the node: the rows around it began with the same number.
    # Rows recomputed within the backward pass are sorted first, so that they are chosen last.
    order = candidates[np.lexsort((begin[candidates], ~inside[candidates], sequence[candidates], track[candidates]))]
    for number in np.unique(thread[backward]).tolist():
        rows = backward[thread[backward] == number]
        best = np.full(len(rows), -1)
        for each in np.unique(track[candidates]).tolist():
            found = _last_with(sequence, order[track[order] == each], sequence[rows])
            found[(found >= 0) & (begin[found] > begin[rows])] = -1
            found[inside[found] & (found >= 0) & (best >= 0)] = -1
            best = found if (found >= 0).sum() > (best >= 0).sum() else best
        forward[rows] = best
    _follow_slices(events, nested, begin, backward, forward)
    lacking = backward[forward[backward] < 0]
    made = matching(events["name"], _RESTORED.search)[lacking]
    return inherit(nested.parent, forward), int((~made).sum()), int(made.sum())


def _follow_slices(
    events: pd.DataFrame, nested: Nest, begin: np.ndarray, backward: np.ndarray, forward: np.ndarray
) -> None:
    """Give the nodes of ops that changed a part of a tensor in place the forward op of the node that they call.

    Such a node, CopySlices, has a number that no forward op has. It calls the in-place op's own node
    (`CopySlices::apply` in PyTorch's torch/csrc/autograd/functions/tensor.cpp).
    """
    named = matching(events["name"], lambda name: name.endswith(_SLICES))
    lacking = np.zeros(len(forward), bool)
    lacking[backward] = named[backward] & (forward[backward] < 0)
    inner = backward[forward[backward] >= 0] if lacking.any() else backward[:0]
    inner = inner[np.argsort(-begin[inner], kind="stable")]  # of several, the first is written last
    while len(inner):
        above = nested.parent[inner]
        found = (above >= 0) & lacking[above]
        forward[above[found]] = forward[inner[found]]
        inner = above[found]


def _last_with(numbers: np.ndarray, order: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The last row in `order` (rows sorted by number) that has each wanted number; -1 if none has."""
    if not len(order):
        return np.full(len(wanted), -1)
    at = np.maximum(np.searchsorted(numbers[order], wanted, side="right") - 1, 0)
    return np.where(numbers[order[at]] == wanted, order[at], -1)


def phases(events: pd.DataFrame, reading: Reading, nested: Nest) -> np.ndarray:
    """Each row's phase: backward within a node of the backward pass, remat for forward ops recorded within one.

    A scope opened within a node that holds such an op is remat as a whole: some ops of a forward pass, such as
    `aten::promote_types`, are never recorded. All other ops of PyTorch are forward, and so is what a scope launches
    without an op, such as a kernel of Triton. The phase of what is in neither, and of other programs' ops, is unknown.
    """
    own = np.full(len(events), -1)
    if reading.forward_thread is None:
        return np.full(len(events), UNKNOWN)
    is_op = (events["kind"] == "op").to_numpy()
    is_node = matching(events["name"], _NODE.match) & is_op
    backward = is_node | (reading.forward_thread > 0)
    own[backward] = BACKWARD
    inside = inherit(nested.parent, own) == BACKWARD
    recorded = (reading.forward_thread == 0) & (events["sequence_nr"].to_numpy() >= 0)
    again = inside & ~backward & recorded
    opened = inherit(nested.parent, np.where((events["kind"] == "scope") & inside, np.arange(len(events)), -1))
    own[again] = REMAT
    own[opened[again & (opened >= 0)]] = REMAT
    found = inherit(nested.parent, own)
    if reading.framework == "torch":
        within = is_op | (events["kind"] == "scope").to_numpy()
        found = np.where((found < 0) & (inherit(nested.parent, np.where(within, 1, -1)) > 0), FORWARD, found)
    return np.where(found < 0, UNKNOWN, found)


def scope_rows(nested: Nest, counting: np.ndarray, forward: np.ndarray) -> np.ndarray:
    """The innermost scope around each row; for a row of the backward pass, the one around its forward row.

    A scope that was opened within the backward pass counts for the rows that it encloses.
    """
    rows = np.arange(len(forward))
    around = inherit(nested.parent, np.where(counting, rows, -1))
    followed = forward >= 0
    same = (nested.parent >= 0) & (forward == forward[nested.parent])
    node = inherit(nested.parent, np.where(followed & ~same, rows, -1))
    deeper = followed & (around >= 0) & (nested.level[around] > nested.level[node])
    return np.where(followed & ~deeper, around[forward], around)
