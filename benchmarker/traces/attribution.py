"""From what a file says to what it means: which row launched which, to which scope each counts, how long it ran itself.

On the host, a row's scopes are the rows of that kind around it on its thread. A kernel takes those of the call that
launched it, a row of the backward pass those of the forward op that it follows. Where the file carries the program,
as JAX's do, the instruction says its own scopes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from benchmarker.traces.categories import categorize
from benchmarker.traces.completion import completed
from benchmarker.traces.costs import counted_once
from benchmarker.traces.events import ON_DEVICE, codes, grouped, words
from benchmarker.traces.hlo import Instruction, Program
from benchmarker.traces.nesting import Nest, busy, enclosed, inherit, nest
from benchmarker.traces.paths import leaf, place, to_leaf
from benchmarker.traces.reading import Reading

_LONGEST_PATH = 4096
"""Characters of a path to which another scope is added; what is longer is shortened at its begin."""
_NOT_SYMBOL = re.compile(r"\W")
_BACKWARD_ROW = "autograd::engine::evaluate_function"
_FORWARD, _BACKWARD, _REMAT, _UNKNOWN = 0, 1, 2, 3
_PHASES = ["forward", "backward", "remat", ""]


@dataclass(frozen=True, slots=True)
class Attributed:
    """The event table, and what was found wrong on the way.

    `unmatched_ops` ran but stand in no program of the file; `unmatched_backward` follow a forward op that is not in
    it; `unlaunched` rows of a device have no launch in it; `overlapping` rows begin within another and end after it.
    """

    events: pd.DataFrame
    unmatched_ops: int
    unmatched_backward: int
    unlaunched: int
    overlapping: int


def attribute(reading: Reading, known: Collection[str] = ()) -> Attributed:
    """Attribute a file's rows; of nested scopes the innermost is counted, or the innermost that is `known`."""
    events = reading.events
    if not len(events):
        return Attributed(events, 0, 0, 0, 0)
    kind = _Kinds(events)
    begin, end = events["ts_ns"].to_numpy(), (events["ts_ns"] + events["dur_ns"]).to_numpy()
    nested = _nest_hosts(events, kind, begin, end)
    launch = _launches(events, kind)
    parent = np.where(kind.on_device, launch, nested.parent)
    rows = np.arange(len(events))
    op_row = inherit(nested, np.where(kind.op, rows, -1))
    forward, unmatched_backward = _forward_rows(events, reading, nested)
    phase = _phases(events, reading, nested)
    counting = kind.scope & events["name"].isin(known).to_numpy() if known else kind.scope
    scope_row = _scope_rows(nested, counting, forward)
    launched = kind.on_device & (launch >= 0)
    for found in (op_row, phase, scope_row):
        found[launched] = found[launch[launched]]
    phase[kind.on_device & ~launched] = _UNKNOWN
    step = _steps(events, kind, begin, launch)
    paths = _paths(events, nested, kind)
    columns: dict[str, Any] = {
        "parent_id": parent,
        "step": step,
        "phase": words(phase, _PHASES),
        "op": _ops(events, kind, op_row, launch),
        "scope_id": scope_row,
        **({} if reading.framework == "jax" else {"scope": words(paths.of[scope_row], paths.texts)}),
    }
    for column in ("program_id", "run"):
        values = events[column].to_numpy()
        columns[column] = np.where(launched & (values < 0), values[launch], values)
    events = events.assign(**columns)
    unmatched_ops = 0
    if reading.framework == "jax":
        events, unmatched_ops = _from_programs(events, reading.programs, kind, known)
        events = events.assign(end_ns=completed(events, reading.programs, kind.work))
    else:
        texts = [*events["name"].cat.categories, ""]
        events["leaf"] = words(np.where(scope_row >= 0, codes(events["name"])[scope_row], len(texts) - 1), texts)
        events["purity"] = 1.0
        _categorise(events)
    events = counted_once(_timed(events, kind, nested), nested, launch, kind.on_device)
    unlaunched = int((kind.on_device & (launch < 0) & (events["op"] == "").to_numpy()).sum())
    return Attributed(events, unmatched_ops, unmatched_backward, unlaunched, nested.overlapping)


class _Kinds:
    """Which rows are of which kind."""

    def __init__(self, events: pd.DataFrame) -> None:
        kinds = events["kind"]
        self.op, self.scope, self.step, self.runtime = (
            (kinds == name).to_numpy() for name in ("op", "scope", "step", "runtime")
        )
        self.on_device = kinds.isin(ON_DEVICE).to_numpy()
        self.work = self.on_device if self.on_device.any() else self.op


def _nest_hosts(events: pd.DataFrame, kind: _Kinds, begin: np.ndarray, end: np.ndarray) -> Nest:
    """Nest the rows of each thread; those of a device's streams enclose nothing."""
    hosts = np.flatnonzero(~kind.on_device)
    thread = grouped(codes(events["device"])[hosts], codes(events["track"])[hosts])[0]
    within = nest(thread, begin[hosts], end[hosts])
    parent, level = np.full(len(events), -1), np.zeros(len(events), np.int32)
    has = within.parent >= 0
    parent[hosts[has]] = hosts[within.parent[has]]
    level[hosts] = within.level
    return Nest(parent, level, within.overlapping)


def _launches(events: pd.DataFrame, kind: _Kinds) -> np.ndarray:
    """Of each device's row, the call with its correlation, else the op with its external number; -1 for neither."""
    launch = np.full(len(events), -1)
    for column, callers in (("correlation", kind.runtime), ("external_id", kind.op | kind.scope)):
        numbers = events[column].to_numpy()
        wanting = np.flatnonzero(kind.on_device & (launch < 0) & (numbers >= 0))
        launch[wanting] = _first_with(numbers, np.flatnonzero(callers & (numbers >= 0)), numbers[wanting])
    return launch


def _first_with(numbers: np.ndarray, rows: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The first of `rows` that has each wanted number; -1 where none has."""
    if not len(rows):
        return np.full(len(wanted), -1)
    order = rows[np.argsort(numbers[rows], kind="stable")]
    at = np.minimum(np.searchsorted(numbers[order], wanted), len(order) - 1)
    return np.where(numbers[order[at]] == wanted, order[at], -1)


def _forward_rows(events: pd.DataFrame, reading: Reading, nested: Nest) -> tuple[np.ndarray, int]:
    """Of each row of the backward pass, the forward row that it follows, -1 elsewhere; how many were not found.

    Both carry a sequence number, which each thread counts for itself, and the backward row the number of the forward
    thread, which is the profiler's own: it is taken for that thread on which most of its rows find their partner.
    """
    forward = np.full(len(events), -1)
    if reading.forward_thread is None:
        return forward, 0
    sequence = events["sequence_nr"].to_numpy()
    thread = reading.forward_thread
    begin, track = events["ts_ns"].to_numpy(), codes(events["track"])
    backward = np.flatnonzero((thread > 0) & (sequence >= 0))
    if not len(backward):
        return forward, 0
    inside = inherit(nested, np.where(thread > 0, 1, -1)) >= 0
    candidates = np.flatnonzero((thread <= 0) & (sequence >= 0))
    # The last forward row with a number is the one that made the node: those around it began with the same number.
    # What was computed again within the backward pass comes first here, so that it is taken last.
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
    return inherit(nested, forward), int((forward[backward] < 0).sum())


def _last_with(numbers: np.ndarray, order: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The last of rows in order of their numbers that has each wanted number; -1 where none has."""
    if not len(order):
        return np.full(len(wanted), -1)
    at = np.maximum(np.searchsorted(numbers[order], wanted, side="right") - 1, 0)
    return np.where(numbers[order[at]] == wanted, order[at], -1)


def _phases(events: pd.DataFrame, reading: Reading, nested: Nest) -> np.ndarray:
    """Backward is what runs within a node of the backward pass; remat what is recorded for another within it."""
    names = events["name"]
    is_node = names.cat.categories.str.startswith(_BACKWARD_ROW)[codes(names)]
    own = np.full(len(events), -1)
    if reading.forward_thread is None:
        return np.full(len(events), _FORWARD)
    backward = is_node | (reading.forward_thread > 0)
    own[backward] = _BACKWARD
    inside = inherit(nested, own) == _BACKWARD
    recorded = (reading.forward_thread == 0) & (events["sequence_nr"].to_numpy() >= 0)
    own[inside & ~backward & recorded] = _REMAT
    found = inherit(nested, own)
    return np.where(found < 0, _FORWARD, found)


def _scope_rows(nested: Nest, counting: np.ndarray, forward: np.ndarray) -> np.ndarray:
    """The innermost scope around each row; of a row of the backward pass, that around its forward row.

    A scope that was opened within the backward pass counts for what is in it.
    """
    rows = np.arange(len(forward))
    around = inherit(nested, np.where(counting, rows, -1))
    followed = forward >= 0
    node = inherit(nested, np.where(followed & ~_same_as_parent(nested, forward), rows, -1))
    deeper = followed & (around >= 0) & (nested.level[around] > nested.level[node])
    return np.where(followed & ~deeper, around[forward], around)


def _same_as_parent(nested: Nest, values: np.ndarray) -> np.ndarray:
    same: np.ndarray = (nested.parent >= 0) & (values == values[nested.parent])
    return same


@dataclass(frozen=True, slots=True)
class _Paths:
    """The path of each scope's row, as the number of a text; what is no scope has the empty one."""

    of: np.ndarray
    texts: list[str]


def _paths(events: pd.DataFrame, nested: Nest, kind: _Kinds) -> _Paths:
    scopes = np.flatnonzero(kind.scope)
    of = np.zeros(len(events) + 1, np.int32)  # the last stands for row -1
    names = events["name"].cat.categories
    name = codes(events["name"])
    above = inherit(nested, np.where(kind.scope, np.arange(len(events)), -1))
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


def _steps(events: pd.DataFrame, kind: _Kinds, begin: np.ndarray, launch: np.ndarray) -> np.ndarray:
    """The step in whose time each row begins; of a device's row, that of its launch."""
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
    launched = kind.on_device & (launch >= 0)
    step[launched] = step[launch[launched]]
    return step


def _ops(events: pd.DataFrame, kind: _Kinds, op_row: np.ndarray, launch: np.ndarray) -> pd.Categorical:
    """The instruction that a row names or its launch does, else the op around it."""
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


def _from_programs(
    events: pd.DataFrame, programs: Mapping[int, Program], kind: _Kinds, known: Collection[str]
) -> tuple[pd.DataFrame, int]:
    """Scopes, phases, opcodes and costs by the programs' own instructions; how many rows of work have none."""
    events = _joined_by_name(events, programs, kind)
    program, op, path = events["program_id"].to_numpy(), codes(events["op"]), codes(events["scope"])
    number, first = grouped(program, op, path)
    ops, paths = events["op"].cat.categories, events["scope"].cat.categories
    found = [
        _explain(programs.get(int(program[row])), ops[op[row]], paths[path[row]] if path[row] >= 0 else "", known)
        for row in first.tolist()
    ]
    texts = ("scope", "leaf", "phase", "members", "opcode", "category", "rule", "program", "source")
    columns = {name: words(number, [getattr(each, name) for each in found]) for name in texts}
    for name in ("purity", "flops", "bytes"):
        columns[name] = np.array([getattr(each, name) for each in found], float)[number]
    matched = np.array([each.matched for each in found])[number]
    execution = np.where(events["run"] >= 0, events["run"], events["step"])
    occurrence = grouped(columns["scope"].codes, execution)[0]
    columns["scope_id"] = np.where((execution >= 0) & kind.work, occurrence, -1)
    if not programs:
        columns.pop("program")
    events = events.assign(**columns)
    lacking = kind.work & (events["category"] == "uncategorised").to_numpy()
    if lacking.any():
        _categorise(events, lacking)
    return events, int((kind.work & (events["op"] != "").to_numpy() & ~matched).sum())


def _joined_by_name(events: pd.DataFrame, programs: Mapping[int, Program], kind: _Kinds) -> pd.DataFrame:
    """Kernels that say no instruction are those of the one instruction, of all programs, that has their name.

    XLA names a kernel for its instruction, with what cannot stand in a symbol made `_`; AMD's runtime adds `.kd`.
    """
    lacking = kind.on_device & (events["op"] == "").to_numpy()
    if not lacking.any():
        return events
    named: dict[str, list[tuple[int, str]]] = {}
    for number, program in programs.items():
        for instruction in program.instructions:
            named.setdefault(_NOT_SYMBOL.sub("_", instruction), []).append((number, instruction))
    names = events["name"].cat.categories
    owners = [named.get(_NOT_SYMBOL.sub("_", name.removesuffix(".kd")), []) for name in names]
    owner = [each[0] if len(each) == 1 else (-1, "") for each in owners]
    name = codes(events["name"])
    program = np.array([number for number, _ in owner])[name]
    texts = [*events["op"].cat.categories, *(instruction for _, instruction in owner)]
    op = np.where(lacking & (program >= 0), len(events["op"].cat.categories) + name, codes(events["op"]))
    program_id = np.where(lacking & (program >= 0), program, events["program_id"])
    return events.assign(op=words(op, texts), program_id=program_id)


@dataclass(frozen=True, slots=True)
class _Explained:
    """What a program says of one instruction."""

    scope: str = ""
    leaf: str = ""
    phase: str = "forward"
    members: str = ""
    opcode: str = ""
    category: str = "uncategorised"
    rule: str = ""
    program: str = ""
    source: str = ""
    purity: float = float("nan")
    flops: float = float("nan")
    bytes: float = float("nan")
    matched: bool = False


def _explain(program: Program | None, op: str, path: str, known: Collection[str]) -> _Explained:
    instruction = program.instructions.get(op) if program else None
    if program is None or instruction is None:
        where = place(path)
        own = leaf(where.scopes, known)
        return _Explained(to_leaf(where.scopes, own), own, where.phase)
    members = program.members(instruction)
    where = place(_path(instruction, members))
    own = leaf(where.scopes, known)
    inside = [place(each.paths[0]).scopes for each in members if each.paths]
    leaves = Counter(leaf(scopes, known) for scopes in inside)
    category, rule = categorize(
        name="", op=op, opcodes=[each.opcode for each in members] or [instruction.opcode], target=instruction.target
    )
    flops = program.flops(instruction)
    return _Explained(
        scope=to_leaf(where.scopes, own),
        leaf=own,
        phase=where.phase,
        members=";".join(sorted({to_leaf(scopes, leaf(scopes, known)) for scopes in inside if leaf(scopes, known)})),
        opcode=instruction.opcode,
        category=category,
        rule=rule,
        program=program.name,
        source=instruction.source,
        purity=leaves[own] / leaves.total() if leaves else 1.0,
        flops=flops or float("nan"),
        bytes=program.bytes(instruction),
        matched=True,
    )


def _path(instruction: Instruction, members: list[Instruction]) -> str:
    """Where an instruction stands; one that says nothing, as copies that XLA adds, where its members do."""
    return next((each.paths[0] for each in (instruction, *reversed(members)) if each.paths), "")


def _categorise(events: pd.DataFrame, rows: np.ndarray | None = None) -> None:
    """Category and rule by the kernel's name and the op that launched it, once for each pair."""
    name, op = codes(events["name"]), codes(events["op"])
    number, first = grouped(name, op)
    names, ops = events["name"].cat.categories, events["op"].cat.categories
    found = [categorize(name=names[name[row]], op=ops[op[row]]) for row in first.tolist()]
    for index, column in enumerate(("category", "rule")):
        made = words(number, [each[index] for each in found])
        if rows is not None:
            texts = [*made.categories, *events[column].cat.categories]
            made = words(
                np.where(rows, made.codes.astype(np.int32), len(made.categories) + codes(events[column])), texts
            )
        events[column] = made


def _timed(events: pd.DataFrame, kind: _Kinds, nested: Nest) -> pd.DataFrame:
    """Own time and share of the busy time of each row that is work; other rows have their own time alone."""
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
