"""HLO instructions: describe the rows that executed them by the programs in the profile."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from benchmarker.traces.attribution.categories import categorize
from benchmarker.traces.attribution.paths import leaf, scope_path, to_leaf
from benchmarker.traces.communication import COMMUNICATION
from benchmarker.traces.events import Kinds, codes, grouped, words
from benchmarker.traces.formats.collectives import kind_of
from benchmarker.traces.formats.hlo import DONE, REWRITTEN, Instruction, Program

_NOT_SYMBOL = re.compile(r"\W")


def from_programs(
    events: pd.DataFrame, programs: Mapping[int, Program], kind: Kinds, known: Collection[str]
) -> tuple[pd.DataFrame, int]:
    """Add scopes, phases, opcodes and costs from the programs; count the rows of work without an instruction."""
    events = _joined_by_name(events, programs, kind)
    program, op, path = events["program_id"].to_numpy(), codes(events["op"]), codes(events["scope"])
    number, first = grouped(program, op, path)
    ops, paths = events["op"].cat.categories, events["scope"].cat.categories
    found = [
        _explain(programs.get(int(program[row])), ops[op[row]], paths[path[row]] if path[row] >= 0 else "", known)
        for row in first.tolist()
    ]
    texts = (
        *("scope", "leaf", "phase", "members", "opcode", "category", "rule"),
        *("program", "source", "shapes", "gemm", "collective"),
    )
    columns = {name: words(number, [getattr(each, name) for each in found]) for name in texts}
    for name in ("purity", "flops", "bytes"):
        columns[name] = np.array([getattr(each, name) for each in found], float)[number]
    columns["message_bytes"] = np.array([each.message_bytes for each in found], np.int64)[number]
    matched = np.array([each.matched for each in found])[number]
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
    owner = [each[0] if len(each) == 1 else (-1, "") for each in owners]
    name = codes(events["name"])
    program = np.array([number for number, _ in owner])[name]
    texts = [*events["op"].cat.categories, *(instruction for _, instruction in owner)]
    op = np.where(lacking & (program >= 0), len(events["op"].cat.categories) + name, codes(events["op"]))
    program_id = np.where(lacking & (program >= 0), program, events["program_id"])
    return events.assign(op=words(op, texts), program_id=program_id)


@dataclass(frozen=True, slots=True)
class _Explained:
    """What a program states about one instruction."""

    scope: str = ""
    leaf: str = ""
    phase: str = ""
    members: str = ""
    opcode: str = ""
    category: str = ""
    rule: str = ""
    program: str = ""
    source: str = ""
    purity: float = float("nan")
    shapes: str = ""
    gemm: str = ""
    flops: float = float("nan")
    bytes: float = float("nan")
    collective: str = ""
    message_bytes: int = -1
    matched: bool = False


def _explain(program: Program | None, op: str, path: str, known: Collection[str]) -> _Explained:
    instruction = program.instructions.get(op) if program else None
    if program is None or instruction is None:
        where = scope_path(path)
        own = leaf(where.scopes, known)
        return _Explained(to_leaf(where.scopes, own), own, where.phase if path else "")
    members = program.members(instruction)
    own_path = _path(instruction, members, program)
    where = scope_path(own_path)
    own = leaf(where.scopes, known)
    inside = [scope_path(each.paths[0]) for each in members if each.paths]
    leaves = Counter(leaf(each.scopes, known) for each in inside)
    paths = {
        to_leaf(each.scopes, counted)
        for each in (where, *inside)
        if (counted := leaf(each.scopes, known)) and not each.is_in_loop_of(counted)
    }
    category, rule = categorize(
        name="", op=op, opcodes=[each.opcode for each in members] or [instruction.opcode], target=instruction.target
    )
    if category == "reduction" and program.is_softmax(instruction):
        category, rule = "softmax", "hlo:reduce, exponential"
    flops = program.flops(instruction)
    kinds = [kind_of(each.opcode) for each in (instruction, *members)] if category == COMMUNICATION else []
    collective = next(filter(None, kinds), "")
    message = program.input_bytes(instruction) if collective and not instruction.opcode.endswith(DONE) else -1
    return _Explained(
        scope=to_leaf(where.scopes, own),
        leaf=own,
        phase=where.phase if own_path else "",
        members=";".join(sorted(paths)),
        opcode=instruction.opcode,
        category=category,
        rule=rule,
        program=program.name,
        source=instruction.source,
        purity=leaves[own] / leaves.total() if leaves else 1.0,
        shapes=program.inputs(instruction),
        gemm=str(program.gemm(instruction) or ""),
        flops=flops or float("nan"),
        bytes=program.bytes(instruction),
        collective=collective if message >= 0 else "",
        message_bytes=message,
        matched=True,
    )


def _path(instruction: Instruction, members: list[Instruction], program: Program) -> str:
    """The path of an instruction; if it has none, like copies that XLA adds, that of a member or of its result."""
    path = next((each.paths[0] for each in (instruction, *reversed(members)) if each.paths), "")
    if not path and any(each.opcode in REWRITTEN for each in members):
        return program.path_of_result(instruction)
    return path
