"""The category of a kernel or op (gemm, attention, communication, ...) and the rule that matched, from a data file."""

import re
import tomllib
from collections.abc import Mapping, Sequence
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
    patterns: re.Pattern[str]


class _Rules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The data file: see the comments in it. Of a table's rows, the first that matches wins."""

    categories: dict[str, str]
    idle: frozenset[str]
    instructions: re.Pattern[str]
    products: re.Pattern[str]
    updates: re.Pattern[str]
    hlo: tuple[_Opcodes, ...]
    own: tuple[_Patterns, ...]
    target: tuple[_Patterns, ...]
    op: tuple[_Patterns, ...]
    name: tuple[_Patterns, ...]


@cache
def _rules() -> _Rules:
    text = files("benchmarker.traces.attribution").joinpath("categories.toml").read_text("utf-8")
    return msgspec.convert(tomllib.loads(text), _Rules, dec_hook=lambda _, rows: re.compile("|".join(rows), re.VERBOSE))


@cache
def _opcodes() -> dict[str, tuple[int, _Opcodes]]:
    """The row of each opcode, and its number: the lower, the heavier the work. `*` stands for all other opcodes."""
    return {opcode: (number, row) for number, row in enumerate(_rules().hlo) for opcode in row.opcodes}


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
        or _matched(rules.own, "name", name)
        or _matched(rules.target, "hlo", target)
        or _by_op(rules, name, name if is_op else op)
        or _matched(rules.name, "name", name)
        or _matched(rules.op, "op", name)
        or (UNCATEGORISED, "")
    )


def _matched(table: Sequence[_Patterns], prefix: str, text: str) -> tuple[str, str] | None:
    """Category and rule of a lower-case text; the rule is the prefix and the matched text."""
    for row in table if text else ():
        if match := row.patterns.search(text):
            return row.category, f"{prefix}:{match.group().strip()}"
    return None


def _by_op(rules: _Rules, name: str, op: str) -> tuple[str, str] | None:
    """Category and rule by the op that launched a kernel, or by the kernel's name if that is more particular."""
    found = _matched(rules.op, "op", op)
    product = rules.products.search(name) if found and found[0] == "attention" and name != op else None
    return ("gemm", f"name:{product.group()}") if product else found


def _by_opcodes(rules: _Rules, opcodes: Sequence[str]) -> tuple[str, str] | None:
    """Category and rule by the opcodes, ignoring those that do no work."""
    of_opcode = _opcodes()
    members = {opcode: of_opcode.get(opcode, of_opcode["*"]) for opcode in opcodes if opcode not in rules.idle}
    if not members:
        return None
    members = {opcode: member for opcode, member in members.items() if not member[1].alone} or members
    heaviest = min(members, key=lambda opcode: members[opcode][0])
    is_mixed = len({row.category for _, row in members.values()}) > 1
    return members[heaviest][1].category, f"hlo:{heaviest}{' (mixed)' if is_mixed else ''}"
