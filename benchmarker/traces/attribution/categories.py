"""The category of a kernel or op (gemm, attention, communication, ...) and the rule that matched, from a data file."""

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
"""Characters of a name that are searched."""


class _Opcodes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """HLO opcodes of one category; `alone` ones count only if a fusion contains nothing else."""

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
    products: tuple[str, ...]
    updates: tuple[str, ...]
    hlo: tuple[_Opcodes, ...]
    own: tuple[_Patterns, ...]
    target: tuple[_Patterns, ...]
    op: tuple[_Patterns, ...]
    name: tuple[_Patterns, ...]


@dataclass(frozen=True, slots=True)
class _Opcode:
    """The category of an HLO opcode and its rank: the lower the weight, the heavier the work."""

    weight: int
    category: str
    alone: bool


class _Table:
    """Rows of patterns, one regular expression per row; the first row that matches wins."""

    def __init__(self, rows: Iterable[_Patterns]) -> None:
        self._rows = [(row.category, re.compile("|".join(row.patterns), re.VERBOSE)) for row in rows]

    def find(self, prefix: str, text: str) -> tuple[str, str] | None:
        """Category and rule of a lower-case text; the rule is the prefix and the matched text."""
        if text:
            for category, pattern in self._rows:
                if match := pattern.search(text):
                    return category, f"{prefix}:{match.group().strip()}"
        return None


@dataclass(frozen=True, slots=True)
class _Rules:
    """The data file, prepared for look-ups."""

    categories: dict[str, str]
    idle: frozenset[str]
    opcodes: dict[str, _Opcode]
    other: _Opcode
    """The entry for opcodes that the file does not list."""
    instructions: re.Pattern[str]
    """Matches the names of ops and HLO instructions."""
    products: re.Pattern[str]
    """Matches the names of kernels that are matrix products even if an attention op launches them."""
    updates: re.Pattern[str]
    """Matches ops that update parameters if an optimizer's step runs them."""
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
    instructions, products, updates = (
        re.compile("|".join(each), re.VERBOSE) for each in (data.instructions, data.products, data.updates)
    )
    return _Rules(data.categories, frozenset(data.idle), opcodes, other, instructions, products, updates, *tables)


def categories() -> Mapping[str, str]:
    """Every category and its one-line description, in the order in which tables show them."""
    return _rules().categories


def categorize(
    *, name: str, op: str = "", opcodes: Sequence[str] = (), target: str = "", optimizing: bool = False
) -> tuple[str, str]:
    """The category of a kernel or op, and the rule that matched, such as `hlo:dot` or `op:aten::mm`.

    `name` is the profiler's name. `op` is the framework op that launched it, or the name of the HLO instruction.
    `opcodes` are those of the instruction or of its fusion's members. `target` is the target of a custom call.
    `optimizing` says that an optimizer's step ran it; an op like `_foreach_add` is then an update of parameters. Of the
    rest, the first that matches decides:

    1. HLO opcodes: the category of the heaviest member. The rule ends in `(mixed)` if members have several.
    2. Kernel names that state what the kernel does, independent of what launched it (`own` in the data): a Memset, a
       layout transpose or a softmax keeps its category even if a convolution or an attention op launched it.
    3. The target of the custom call.
    4. The launching op: a matrix product launched by a convolution counts as convolution, and a kernel that adds up the
       parts of a matrix product counts as matrix product. A kernel that is named as a matrix product counts as one
       though an attention op launched it.
    5. All other kernel names (`name` in the data).

    If no op is known, a name that looks like an op is used as the op. Any other name is looked up among the ops last,
    because on a CPU the executed rows are ops. If nothing matches, the result is `("uncategorised", "")`.
    """
    rules = _rules()
    name, op, target = (text[:_LONGEST].lower() for text in (name, op, target))
    if optimizing and (match := rules.updates.search(op or name)):
        return "optimizer", f"op:{match.group()}"
    is_op = not op and rules.instructions.search(name) is not None
    return (
        _by_opcodes(rules, opcodes)
        or rules.own.find("name", name)
        or rules.target.find("hlo", target)
        or _by_op(rules, name, name if is_op else op)
        or rules.name.find("name", name)
        or rules.op.find("op", name)
        or (UNCATEGORISED, "")
    )


def _by_op(rules: _Rules, name: str, op: str) -> tuple[str, str] | None:
    """Category and rule by the op that launched a kernel, or by the kernel's name if that is more particular."""
    found = rules.op.find("op", op)
    product = rules.products.search(name) if found and found[0] == "attention" and name != op else None
    return ("gemm", f"name:{product.group()}") if product else found


def _by_opcodes(rules: _Rules, opcodes: Sequence[str]) -> tuple[str, str] | None:
    """Category and rule by the opcodes, ignoring those that do no work."""
    members = {opcode: rules.opcodes.get(opcode, rules.other) for opcode in opcodes if opcode not in rules.idle}
    if not members:
        return None
    members = {opcode: member for opcode, member in members.items() if not member.alone} or members
    heaviest = min(members, key=lambda opcode: members[opcode].weight)
    is_mixed = len({member.category for member in members.values()}) > 1
    return members[heaviest].category, f"hlo:{heaviest}{' (mixed)' if is_mixed else ''}"
