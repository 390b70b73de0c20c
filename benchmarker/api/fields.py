"""Types of fields of stored structs, and the reasons why one may be null."""

import types
from collections.abc import Iterator
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from msgspec import Meta, Struct

LARGEST = 2**63 - 1
"""Largest integer that tables and other readers of JSON can hold."""
Count = Annotated[int, Meta(ge=0, le=LARGEST)]
Positive = Annotated[int, Meta(ge=1, le=LARGEST)]
Whole = Annotated[int, Meta(ge=-LARGEST, le=LARGEST)]


_KEY = "null_because"
NULL_IS_AN_ANSWER = Meta(extra={_KEY: None})
"""Marks a field whose null needs no reason: nothing was requested, or there is nothing to report."""


def null_because(reason: str) -> Meta:
    """Mark a field with the reason for its null; `{case.problem}` etc. are replaced with parts of the trial's case."""
    return Meta(extra={_KEY: reason})


def declared_reasons(struct: type[Struct]) -> dict[str, str | None]:
    """Return the reason for each null that a struct may contain, by path (`machine.gpus[].driver`); None if not needed.

    Raises TypeError if a field may be null but declares no reason.
    """
    return dict(_walk(struct, ""))


def _walk(struct: type[Struct], prefix: str) -> Iterator[tuple[str, str | None]]:
    for name, hint in get_type_hints(struct, include_extras=True).items():
        if name in struct.__struct_fields__:
            path = f"{prefix}{name}"
            kinds, marks = _parts(hint)
            if type(None) in kinds:
                if _KEY not in marks:
                    raise TypeError(f"{struct.__name__}.{name} may be null: mark it with `null_because(...)`")
                yield path, marks[_KEY]
            for kind in kinds:
                item, index = (get_args(kind)[0], "[]") if get_origin(kind) is list else (kind, "")
                if isinstance(item, type) and issubclass(item, Struct):
                    yield from _walk(item, f"{path}{index}.")


def _parts(hint: Any) -> tuple[list[Any], dict[str, Any]]:
    """Return the types that a hint allows, and the extra data of its `Meta` annotations."""
    if get_origin(hint) is Annotated:
        inner, *metas = get_args(hint)
        kinds, marks = _parts(inner)
        extras = [meta.extra for meta in metas if isinstance(meta, Meta) and meta.extra]
        return kinds, marks | {key: value for extra in extras for key, value in extra.items()}
    if get_origin(hint) in (Union, types.UnionType):
        parts = [_parts(argument) for argument in get_args(hint)]
        return [kind for kinds, _ in parts for kind in kinds], {k: v for _, marks in parts for k, v in marks.items()}
    return [hint], {}
