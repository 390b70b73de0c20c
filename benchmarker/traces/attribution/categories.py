"""What a kernel or an op is for: gemm, attention, communication, ... from data, with the rule that said so."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import msgspec

UNCATEGORISED = "uncategorised"
_LONGEST = 4096
"""Characters of a name that are looked at."""


class _Opcodes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """HLO opcodes of one category; `alone` ones count only where a fusion holds nothing else."""

    category: str
    opcodes: tuple[str, ...]
    alone: bool = False


class _Patterns(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Regular expressions of one category."""

    category: str
    patterns: tuple[str, ...]


class _Data(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The data file: see the comments in it."""

    categories: dict[str, str]
    idle: tuple[str, ...]
    instructions: tuple[str, ...]
    hlo: tuple[_Opcodes, ...]
    own: tuple[_Patterns, ...]
    target: tuple[_Patterns, ...]
    op: tuple[_Patterns, ...]
    name: tuple[_Patterns, ...]


@dataclass(frozen=True, slots=True)
class _Opcode:
    """What an HLO opcode says: the lower the weight, the heavier the work."""

    weight: int
    category: str
    alone: bool


class _Table:
    """Rows of patterns, the first row that matches winning; one regular expression a row."""

    def __init__(self, rows: Iterable[_Patterns]) -> None:
        self._rows = [(row.category, re.compile("|".join(row.patterns), re.VERBOSE)) for row in rows]

    def find(self, prefix: str, text: str) -> tuple[str, str] | None:
        """Category and rule of a text in lower case: the rule is the prefix and what matched."""
        if text:
            for category, pattern in self._rows:
                if match := pattern.search(text):
                    return category, f"{prefix}:{match.group().strip()}"
        return None


@dataclass(frozen=True, slots=True)
class _Rules:
    """The data file, made ready for look-ups."""

    categories: dict[str, str]
    idle: frozenset[str]
    opcodes: dict[str, _Opcode]
    other: _Opcode
    """What an opcode is that the file does not list."""
    instructions: re.Pattern[str]
    """Names that are those of ops."""
    own: _Table
    target: _Table
    op: _Table
    name: _Table


@cache
def _rules() -> _Rules:
    text = files("benchmarker.traces.attribution").joinpath("categories.toml").read_text("utf-8")
    data = msgspec.convert(tomllib.loads(text), _Data)
    opcodes: dict[str, _Opcode] = {}
    other = _Opcode(0, UNCATEGORISED, False)
    for weight, row in enumerate(data.hlo):
        for opcode in row.opcodes:
            entry = _Opcode(weight, row.category, row.alone)
            if opcode == "*":
                other = entry
            else:
                opcodes[opcode] = entry
    tables = (_Table(rows) for rows in (data.own, data.target, data.op, data.name))
    instructions = re.compile("|".join(data.instructions), re.VERBOSE)
    return _Rules(data.categories, frozenset(data.idle), opcodes, other, instructions, *tables)


def categories() -> Mapping[str, str]:
    """Every category and a line on it, in the order in which tables show them."""
    return _rules().categories


def categorize(*, name: str, op: str = "", opcodes: Sequence[str] = (), target: str = "") -> tuple[str, str]:
    """The category of a kernel or op, and the rule that said so, such as `hlo:dot` or `op:aten::mm`.

    `name` is the profiler's, `op` the framework's op that launched it or the HLO instruction's name, `opcodes` those of
    the instruction or of its fusion's members, `target` a custom call's. The first of these to know decides:

    1. HLO opcodes: the heaviest member's category, and `(mixed)` in the rule where members are of several.
    2. Kernel names that say what the kernel does whatever launched it (`own` in the data): a Memset, a layout transpose
       or a softmax is that also where a convolution or an attention op launched it.
    3. The custom call's target, 4. the launching op: of a convolution the matrix product too is the convolution's work,
       of a matrix product the kernel that adds up its parts is the product's.
    5. All other kernel names (`name` in the data).

    Where no op is known, a name that looks like one is taken for it, and any other is looked for among the ops last: on
    CPU ops are what is executed. Nothing found is `("uncategorised", "")`.
    """
    rules = _rules()
    name, op, target = (text[:_LONGEST].lower() for text in (name, op, target))
    is_op = not op and rules.instructions.search(name) is not None
    return (
        _by_opcodes(rules, opcodes)
        or rules.own.find("name", name)
        or rules.target.find("hlo", target)
        or rules.op.find("op", name if is_op else op)
        or rules.name.find("name", name)
        or rules.op.find("op", name)
        or (UNCATEGORISED, "")
    )


def _by_opcodes(rules: _Rules, opcodes: Sequence[str]) -> tuple[str, str] | None:
    """What the opcodes say, without those that do no work."""
    members = {opcode: rules.opcodes.get(opcode, rules.other) for opcode in opcodes if opcode not in rules.idle}
    if not members:
        return None
    members = {opcode: member for opcode, member in members.items() if not member.alone} or members
    heaviest = min(members, key=lambda opcode: members[opcode].weight)
    is_mixed = len({member.category for member in members.values()}) > 1
    return members[heaviest].category, f"hlo:{heaviest}{' (mixed)' if is_mixed else ''}"
