"""What `mkdocs build` adds: tables made from the code, in place of the comments that name them, and reports.

A page that links to FILE.html, and has a command with `-o FILE.html`, gets that file: the command is executed, after
the `bundle unpack` commands of the page.
"""

from __future__ import annotations

import ast
import inspect
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from itertools import takewhile
from pathlib import Path
from textwrap import dedent
from typing import Any, NamedTuple, get_args

import msgspec.inspect as types
from msgspec import Struct

from benchmarker.api.precision import PRECISIONS
from benchmarker.records.archive_rows import Trial
from benchmarker.records.plan import Plan
from benchmarker.records.record import Record
from benchmarker.worker import launch, parent, protocol

_NAMES = {types.BoolType: "boolean", types.IntType: "integer", types.FloatType: "number", types.StrType: "string"}


class Field(NamedTuple):
    """A field of a struct: its path, its type in words, what it means, and the struct below it, if any."""

    path: str
    kind: str
    meaning: str
    below: type[Struct] | None


def on_page_markdown(markdown: str, **_: object) -> str:
    """Return the text of a page with its tables; mkdocs calls this for each page."""
    return re.sub(r"<!-- (the [a-z ]+) -->", lambda mark: TABLES[mark[1]](), markdown)


def on_post_build(config: Any, **_: object) -> None:
    """Write the reports of the pages into the site; mkdocs calls this at the end."""
    docs, site = Path(config["docs_dir"]), Path(config["site_dir"])
    for page in sorted(docs.rglob("*.md")):
        files, commands = reports(page.read_text(encoding="utf-8"))
        if not files:
            continue
        with tempfile.TemporaryDirectory() as name:
            folder = inside(Path(name), docs.parent)
            for words in commands:
                subprocess.run(
                    [sys.executable, "-m", "benchmarker", *words], cwd=folder, check=True, stdout=subprocess.DEVNULL
                )
            for file in files:
                shutil.copy(folder / file, site / page.parent.relative_to(docs))


def reports(markdown: str) -> tuple[list[str], list[list[str]]]:
    """Return the reports that a page links to, and the commands that make them, without `benchmarker`."""
    commands = [line.split() for line in re.findall(r"^python -m benchmarker (.+)$", markdown, flags=re.MULTILINE)]
    writing = {words[-1]: words for words in commands if words[-2:-1] == ["-o"] and f"]({words[-1]})" in markdown}
    unpacking = [words for words in commands if words[:2] == ["bundle", "unpack"]]
    return [*writing], [*unpacking, *writing.values()] if writing else []


def inside(folder: Path, top: Path) -> Path:
    """Return a folder in which the commands of a page can be executed, which has what they read of the top folder."""
    for name in ("benchmarks", "docs"):
        (folder / name).symlink_to(top / name)
    return folder


def precisions() -> str:
    """Return the table of precisions."""
    rows = ((f"`{p.name}`", p.parameter, p.compute, p.accumulate, f"{p.bound:.2g}") for p in PRECISIONS.values())
    return _table("name | weights and inputs | factors of products | sums of products | bound without rounding", rows)


def record_fields() -> str:
    """Return a table of the fields of a record, and one of all that is below each of them."""
    fields = list(fields_of(Record))
    described = {field.below: field for field in reversed(fields) if field.below}
    text = [_field_table(fields)]
    for struct, field in reversed(described.items()):
        text += [f"### {field.path}", _linked(inspect.cleandoc(struct.__doc__ or ""))]
        text.append(_field_table(_all_below(field, set(described))))
    return "\n\n".join(text)


def plan_fields() -> str:
    """Return the table of the fields of a plan."""
    return _field_table(fields_of(Plan))


def worker_events() -> str:
    """Return the table of the events of a worker, with the types of their fields."""
    rows = []
    for event in get_args(protocol.Event):
        info = types.type_info(event)
        assert isinstance(info, types.StructType)
        fields = [f"`{field.name}`: {_kind(field.type)}" for field in info.fields if field.name != "of"]
        if event is protocol.RecordPart:
            fields = [f"any of {', '.join(f'`{name}`' for name in event.__struct_fields__ if name != 'of')}"]
        rows.append((f"`{event.__name__}`", "; ".join(fields), _linked(" ".join((event.__doc__ or "").split()))))
    return _table("type | fields | meaning", rows)


def worker_limits() -> str:
    """Return the table of what is allowed to a worker."""
    rows = (
        ("a line that it sends", f"{launch.LINE_BYTES >> 20} MiB"),
        ("its log", f"{launch.LOG_BYTES >> 20} MiB; the last line says how much more is left out"),
        ("its time", "`timeout_s` of the case; then SIGTERM, at which it sends the blocks that it has"),
        ("its time after that", f"{launch.GRACE_S:g} s; then it is killed, with everything that it has started"),
        ("reports of progress", f"one every {parent.REPORT_EVERY_S:g} s"),
    )
    return _table("what | at most", rows)


TABLES = {
    "the precisions": precisions,
    "the fields of a record": record_fields,
    "the fields of a plan": plan_fields,
    "the columns of an archive": lambda: _field_table(fields_of(Trial)),
    "the task of a worker": lambda: _field_table(fields_of(protocol.Task)),
    "the commands of a worker": lambda: _field_table(fields_of(protocol.Command)),
    "the events of a worker": worker_events,
    "the limits of a worker": worker_limits,
}


def fields_of(struct: type[Struct], prefix: str = "") -> Iterator[Field]:
    """Return each field of a struct; raises ValueError if nothing says what it means."""
    info = types.type_info(struct)
    assert isinstance(info, types.StructType)
    comments = {name: text for base in reversed(struct.__mro__[:-2]) for name, text in _comments(base)}
    for field in info.fields:
        given = field.type if isinstance(field.type, types.Metadata) else types.Metadata(field.type)
        meaning = comments.get(field.name) or (given.extra_json_schema or {}).get("description")
        if not meaning:
            raise ValueError(f"{struct.__name__}.{field.name} needs a comment `#: ...` that says what it means")
        needs_reason = (given.extra or {}).get("null_because") is not None
        kind = _kind(field.type).replace("null", "null with a reason" if needs_reason else "null")
        yield Field(f"{prefix}{field.name}", kind, meaning, _struct_in(field.type))


def _all_below(field: Field, elsewhere: set[type[Struct]]) -> Iterator[Field]:
    """Return the fields below a field, at any depth, but not those of structs that are described elsewhere."""
    assert field.below
    for inner in fields_of(field.below, f"{field.path}[]." if field.kind == "list" else f"{field.path}."):
        yield inner
        if inner.below and inner.below not in elsewhere:
            yield from _all_below(inner, elsewhere)


def _comments(struct: type) -> Iterator[tuple[str, str]]:
    """Return the comment `#: ...` of each field: behind it, or in the lines above."""
    if struct.__module__.startswith("msgspec"):
        return
    lines = dedent(inspect.getsource(struct)).splitlines()
    (definition,) = ast.parse("\n".join(lines)).body
    assert isinstance(definition, ast.ClassDef)
    for node in definition.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            above = takewhile(lambda line: line.strip().startswith("#:"), reversed(lines[: node.lineno - 1]))
            behind = lines[(node.end_lineno or node.lineno) - 1].encode()[node.end_col_offset :].decode()
            parts = [*reversed([*above]), behind]
            yield node.target.id, " ".join(part.partition("#:")[2].strip() for part in parts).strip()


def _kind(kind: types.Type) -> str:
    """Return a type in words."""
    match kind:
        case types.Metadata():
            return _kind(kind.type)
        case types.UnionType():
            return ", ".join(_kind(each) for each in kind.types)
        case types.LiteralType():
            return ", ".join(f"`{value}`" for value in kind.values)
        case types.ListType():
            return _several(kind.item_type)
        case types.TupleType():
            return _several(kind.item_types[0])
        case types.DictType():
            return f"{_several(kind.value_type)} by name".replace("list by", "objects by")
        case types.NoneType():
            return "null"
    return _NAMES.get(type(kind), "object")


def _several(kind: types.Type) -> str:
    """Return the type of a list of such values in words."""
    words = _kind(kind)
    if words == "object":
        return "list"
    if words in _NAMES.values():
        return f"{words}s"
    return f"lists of {words}" if words.endswith("s") else f"list of {words}" if "`" in words else "values"


def _struct_in(kind: types.Type) -> type[Struct] | None:
    """Return the struct that a value is, or that the items of a list are, if any."""
    match kind:
        case types.Metadata():
            return _struct_in(kind.type)
        case types.UnionType():
            return next(filter(None, map(_struct_in, kind.types)), None)
        case types.ListType():
            return _struct_in(kind.item_type)
        case types.StructType():
            return kind.cls
    return None


def _field_table(fields: Iterable[Field]) -> str:
    return _table("path | type | meaning", ((f"`{f.path}`", f.kind, _linked(f.meaning)) for f in fields))


def _linked(text: str) -> str:
    """Return a text with links to the pages that it names."""
    return re.sub(r"docs/([\w-]+\.md)", r"[\1](\1)", text)


def _table(head: str, rows: Iterable[Iterable[str]]) -> str:
    lines = [head, " | ".join("---" for _ in head.split(" | ")), *(" | ".join(row) for row in rows)]
    return "\n".join(f"| {line} |" for line in lines)
