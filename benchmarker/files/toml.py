"""Read and convert TOML files written by users; errors name the file and the key."""

from __future__ import annotations

import math
import tomllib
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from benchmarker.api.errors import UserError
from benchmarker.files import regular
from benchmarker.files.values import take

if TYPE_CHECKING:
    from pathlib import Path

_T = TypeVar("_T", bound=msgspec.Struct)


def load(path: Path) -> dict[str, Any]:
    """Return the tables of a file; raises `UserError` that names the file and the faulty line."""
    try:
        return tomllib.loads(regular.content(path).decode("utf-8"))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text: {error.reason} at byte {error.start}") from error
    except (ValueError, RecursionError) as error:  # ValueError is the parent of TOMLDecodeError
        raise UserError(f"{path}: not TOML: {error}") from error


def take_table(name: str, table: dict[str, Any], kind: type[_T]) -> _T:
    """Convert a table to a struct of `kind`, key by key.

    Raises `UserError` that names the key if it is unknown or missing, or if its value has the wrong type, is out of
    range or is not finite.
    """
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    for key, value in table.items():
        if key not in fields:
            raise UserError(f"{name} has no key {key}; there are: {', '.join(fields)}")
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(f"{name}.{key}={value}: not a finite number")
        take(f"{name}.{key}", value, fields[key].type)
    if lacking := [key for key, field in fields.items() if field.required and key not in table]:
        raise UserError(f"{name} needs {', '.join(lacking)}")
    return msgspec.convert(table, kind)
