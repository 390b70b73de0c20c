"""HLO instructions: describe the rows that executed them by the programs in the profile.

An instruction's path, `jit(f)/transpose(jvp(Model))/h.0/attn_q_k/dot_general`, has a token for each scope,
transformation around scopes and jitted function, and the primitive at its end.

An asynchronous op is complete when the op that waits for it ends (copy-start and copy-done). The thread often writes
another marker late, after everything that depends on the op has run: such an op was complete no later than when the
first instruction that uses its result began, or when its step ended.
"""

import math
import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from benchmarker.traces.attribution.categories import categorize
from benchmarker.traces.events import Kinds, codes, grouped, matching, words
from benchmarker.traces.formats.hlo import DONE, REWRITTEN, STARTS, Instruction, Program
from benchmarker.traces.formats.notation import collective_kind
from benchmarker.traces.intervals import COMMUNICATION

_OPENING = re.compile(r"([\w.\-<>]+)\(")
_CALLED = {"jit", "pjit", "xla_call", "core_call", "closed_call", "custom_jvp_call", "custom_vjp_call", "named_call"}
"""Wrappers around a function's name; such a name is not a scope."""
_NOT_SCOPES = {
    "while",
    "body",
    "cond",
    "branch",
    "closed_call",
    "remat",
    "checkpoint",
    "rematted_computation",
    "shard_map",
}
_LOOPS = {"while"}
_BACKWARD = "gradient_tape"
"""What the paths of gradients begin with in TensorFlow, before the scopes of the forward pass."""
_REMAT = {"rematted_computation", "remat2"}


@dataclass(frozen=True, slots=True)
class ScopePath:
    """Where an instruction belongs: the scopes around it, outermost first, and its phase.

    The first `outside` scopes are around the innermost loop: they are not entered once for each iteration.
    """

    scopes: tuple[str, ...]
    phase: str
    outside: int = 0

    def is_in_loop_of(self, counted: str) -> bool:
        """Whether there is a loop within the scope that counts, so that the instruction runs more often than it."""
        return counted in self.scopes and len(self.scopes) - self.scopes[::-1].index(counted) <= self.outside


def scope_path(path: str) -> ScopePath:
    """The scopes and the phase that a path encodes; the primitive at its end is left out."""
    scopes: list[str] = []
    backward = remat = False
    outside = 0
    tokens = _tokens(path)
    for number, wrapped in enumerate(tokens):
        start, end, called = 0, len(wrapped), False
        while wrapped[end - 1 : end] == ")" and (match := _OPENING.match(wrapped, start, end)):
            backward = backward or match[1] == "transpose"
            remat = remat or match[1] in _REMAT
            called = called or match[1] in _CALLED
            start, end = match.end(), end - 1
        token = wrapped[start:end]
        remat = remat or token in _REMAT
        backward = backward or token == _BACKWARD
        if token in _LOOPS:
            outside = len(scopes)
        last = number == len(tokens) - 1
        # The backward pass of a checkpoint repeats the scopes around it: transpose(jvp(Model))/jvp(Model)/checkpoint.
        repeated = start > 0 and scopes[-1:] == [token]
        is_scope = token not in _NOT_SCOPES and token != _BACKWARD and not token.startswith("branch_")
        if token and is_scope and not called and not last and not repeated:
            scopes.append(token)
    return ScopePath(tuple(scopes), "remat" if remat else "backward" if backward else "forward", outside)


def _tokens(path: str) -> list[str]:
    """Split a path at the slashes outside parentheses."""
    tokens, depth, start = [], 0, 0
    for index, char in enumerate(path):
        depth = max(0, depth + (char == "(") - (char == ")"))
        if char == "/" and depth == 0:
            tokens.append(path[start:index])
            start = index + 1
    return [*tokens, path[start:]]


def leaf(scopes: tuple[str, ...], known: Collection[str]) -> str:
    """The scope that counts: the innermost, or if `known` has names, the innermost of these; empty if there is none."""
    if not known:
        return scopes[-1] if scopes else ""
    return next((scope for scope in reversed(scopes) if scope in known), "")


def to_leaf(scopes: tuple[str, ...], counted: str) -> str:
    """The path from the outermost scope to the one that counts."""
    if not counted:
        return "/".join(scopes)
    last = len(scopes) - scopes[::-1].index(counted)
    return "/".join(scopes[:last])


_NOT_SYMBOL = re.compile(r"\W")


def from_programs(
    events: pd.DataFrame, programs: Mapping[int, Program], kind: Kinds, known: Collection[str]
) -> tuple[pd.DataFrame, int]:
    """Add scopes, phases, opcodes and costs from the programs; count the rows of work without an instruction."""
    events = _joined_by_name(events, programs, kind)
    program, op, path = events["program_id"].to_numpy(), codes(events["op"]), codes(events["scope"])
    number, first = grouped(program, op, path)
    ops, paths = events["op"].cat.categories, events["scope"].cat.categories
    explained = [
        _explain(programs.get(int(program[row])), ops[op[row]], paths[path[row]] if path[row] >= 0 else "", known)
        for row in first.tolist()
    ]
    texts = (
        *("scope", "leaf", "phase", "members", "opcode", "category", "rule"),
        *("program", "source", "shapes", "gemm", "collective"),
    )
    columns: dict[str, Any] = {name: words(number, [one.get(name, "") for one in explained]) for name in texts}
    for name in ("purity", "flops", "bytes"):
        columns[name] = np.array([one.get(name, math.nan) for one in explained], float)[number]
    columns["message_bytes"] = np.array([one.get("message_bytes", -1) for one in explained], np.int64)[number]
    matched = np.array(["opcode" in one for one in explained])[number]
    execution = np.where(events["run"] >= 0, events["run"], events["step"])
    occurrence = grouped(columns["scope"].codes, execution)[0]
    columns["scope_id"] = np.where((execution >= 0) & kind.work, occurrence, -1)
    if not programs:
        columns.pop("program")
    events = events.assign(**columns)
    return events, int((kind.work & (events["op"] != "").to_numpy() & ~matched).sum())


def _joined_by_name(events: pd.DataFrame, programs: Mapping[int, Program], kind: Kinds) -> pd.DataFrame:
    """Assign kernels that name no instruction to the instruction of that name, if all programs together have just one.

    XLA names a kernel after its instruction, with `_` for characters not allowed in a symbol; AMD's runtime adds `.kd`.
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
    owner = [owner[0] if len(owner) == 1 else (-1, "") for owner in owners]
    name = codes(events["name"])
    program = np.array([number for number, _ in owner])[name]
    texts = [*events["op"].cat.categories, *(instruction for _, instruction in owner)]
    op = np.where(lacking & (program >= 0), len(events["op"].cat.categories) + name, codes(events["op"]))
    program_id = np.where(lacking & (program >= 0), program, events["program_id"])
    return events.assign(op=words(op, texts), program_id=program_id)


def _explain(program: Program | None, op: str, path: str, known: Collection[str]) -> dict[str, Any]:
    """What a program states about one instruction, by column; without an opcode if the instruction is not in it."""
    instruction = program.instructions.get(op) if program else None
    if program is None or instruction is None:
        where = scope_path(path)
        own = leaf(where.scopes, known)
        return {"scope": to_leaf(where.scopes, own), "leaf": own, "phase": where.phase if path else ""}
    members = program.members(instruction)
    own_path = _path(instruction, members, program)
    where = scope_path(own_path)
    own = leaf(where.scopes, known)
    inside = [scope_path(member.paths[0]) for member in members if member.paths]
    leaves = Counter(leaf(each.scopes, known) for each in inside)
    paths = {
        to_leaf(each.scopes, counted)
        for each in (where, *inside)
        if (counted := leaf(each.scopes, known)) and not each.is_in_loop_of(counted)
    }
    category, rule = categorize(
        name="", op=op, opcodes=[member.opcode for member in members] or [instruction.opcode], target=instruction.target
    )
    if category == "reduction" and program.is_softmax(instruction):
        category, rule = "softmax", "hlo:reduce, exponential"
    flops = program.flops(instruction)
    kinds = [collective_kind(each.opcode) for each in (instruction, *members)] if category == COMMUNICATION else []
    collective = next(filter(None, kinds), "")
    message = program.input_bytes(instruction) if collective and not instruction.opcode.endswith(DONE) else -1
    return {
        "scope": to_leaf(where.scopes, own),
        "leaf": own,
        "phase": where.phase if own_path else "",
        "members": ";".join(sorted(paths)),
        "opcode": instruction.opcode,
        "category": category,
        "rule": rule,
        "program": program.name,
        "source": instruction.source,
        "purity": leaves[own] / leaves.total() if leaves else 1.0,
        "shapes": program.inputs(instruction),
        "gemm": str(program.gemm(instruction) or ""),
        "flops": flops or math.nan,
        "bytes": program.bytes(instruction),
        "collective": collective if message >= 0 else "",
        "message_bytes": message,
    }


def _path(instruction: Instruction, members: list[Instruction], program: Program) -> str:
    """The path of an instruction; if it has none, like copies that XLA adds, that of a member or of its result."""
    path = next((each.paths[0] for each in (instruction, *reversed(members)) if each.paths), "")
    if not path and any(member.opcode in REWRITTEN for member in members):
        return program.path_of_result(instruction)
    return path


_NEVER = np.iinfo(np.int64).max


def completed(events: pd.DataFrame, programs: Mapping[int, Program], work: np.ndarray) -> np.ndarray:
    """The column `end_ns`, limited to the first use of the result; -1 if an op was complete when it ended."""
    end_ns: np.ndarray = events["end_ns"].to_numpy().copy()
    late = np.flatnonzero(end_ns >= 0)
    if len(late):
        until = (events["ts_ns"] + events["dur_ns"]).to_numpy()[late]
        latest = np.minimum(end_ns[late], _step_ends(events, late))
        latest = np.minimum(latest, _first_uses(events, programs, np.flatnonzero(work), late, until))
        end_ns[late] = np.where(latest > until, latest, -1)
    latest_ns: np.ndarray = np.maximum(end_ns, _waited_for(events, programs, np.flatnonzero(work)))
    return latest_ns


def _waited_for(events: pd.DataFrame, programs: Mapping[int, Program], work: np.ndarray) -> np.ndarray:
    """When the op ended that waited for each row that began an asynchronous operation; -1 for other rows."""
    end_ns = np.full(len(events), -1)
    begin, op, program = events["ts_ns"].to_numpy(), codes(events["op"]), events["program_id"].to_numpy()
    begins = matching(events["opcode"], lambda opcode: opcode.endswith(STARTS))
    waits = matching(events["opcode"], lambda opcode: opcode.endswith(DONE))
    first, last = work[begins[work]], work[waits[work]]
    if not (len(first) and len(last)):
        return end_ns
    row, user = _uses(op[first], program[first], programs, list(events["op"].cat.categories))
    execution = grouped(codes(events["device"]), program, events["run"])[0]
    started = pd.DataFrame({"row": first[row], "execution": execution[first[row]], "op": user, "at": begin[first[row]]})
    ended = pd.DataFrame({"end": last, "execution": execution[last], "op": op[last], "at": begin[last]})
    pairs = pd.merge_asof(
        *(each.astype("int64").sort_values("at") for each in (started, ended)),
        on="at",
        by=["execution", "op"],
        direction="forward",
    ).dropna()
    rows, ends = (pairs[name].to_numpy().astype(np.int64) for name in ("row", "end"))
    end_ns[rows] = (begin + events["dur_ns"].to_numpy())[ends]
    return end_ns


def _step_ends(events: pd.DataFrame, late: np.ndarray) -> np.ndarray:
    """The end of the step that each row is in."""
    steps = events[events["kind"] == "step"]
    ends = dict(zip(steps["step"].tolist(), (steps["ts_ns"] + steps["dur_ns"]).tolist(), strict=True))
    return np.array([ends.get(step, _NEVER) for step in events["step"].to_numpy()[late].tolist()], np.int64)


def _first_uses(
    events: pd.DataFrame, programs: Mapping[int, Program], work: np.ndarray, late: np.ndarray, until: np.ndarray
) -> np.ndarray:
    """When the first use of each late row's result began, in the same run on its device, after the row's own end."""
    found = np.full(len(late), _NEVER)
    op, program = codes(events["op"]), events["program_id"].to_numpy()
    row, user = _uses(op[late], program[late], programs, list(events["op"].cat.categories))
    if not len(row):
        return found
    device = codes(events["device"])
    execution = grouped(device, program, events["run"].to_numpy())[0] * (int(op.max()) + 1)
    rows = work[np.isin(op[work], user)]
    pairs, pair = np.unique(execution[rows] + op[rows], return_inverse=True)
    times, rank = np.unique(events["ts_ns"].to_numpy()[rows], return_inverse=True)
    begins = np.sort(pair * len(times) + rank)
    wanted = execution[late[row]] + user
    place = np.searchsorted(pairs, wanted)
    least = place * len(times) + np.searchsorted(times, until[row])
    at = np.searchsorted(begins, least)
    used = (place < len(pairs)) & (at < len(begins))
    used[used] = pairs[place[used]] == wanted[used]
    used[used] = begins[at[used]] // len(times) == place[used]
    np.minimum.at(found, row[used], times[begins[at[used]] % len(times)])
    return found


def _uses(
    op: np.ndarray, program: np.ndarray, programs: Mapping[int, Program], names: list[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of a row and an op that uses its result: the row's index among the given rows, and the op's number."""
    code_of = {name: code for code, name in enumerate(names)}
    number, first = grouped(program, op)
    users: list[list[int]] = []
    for row in first.tolist():
        of = programs.get(int(program[row]))
        users.append([code_of[name] for name in of.users(names[op[row]]) if name in code_of] if of else [])
    counts = np.array([len(user) for user in users], np.int64)[number]
    flat = [code for index in number.tolist() for code in users[index]]
    return np.repeat(np.arange(len(op)), counts), np.array(flat, np.int64)
