"""TOML files written by users, and the conversion of their values; errors name the file and the key."""

import json
import math
import re
import tomllib
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

import msgspec

from benchmarker.api.errors import UserError
from benchmarker.files import regular
from benchmarker.formatting import shortened, value_text

_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
}
"""The types of values by msgspec's names for them, in the order in which a message lists them."""
LONGEST = 60
"""Most characters of a value that a message repeats."""
_BOUNDS = {">=": "at least", ">": "greater than", "<=": "at most", "<": "less than"}
_UNITS = {"str": "characters", "array": "values"}


def take(name: str, value: Any, kind: Any) -> Any:
    """Convert a value of a TOML file to `kind`, any type that msgspec supports.

    Raises `UserError`, such as `m="abc": not a whole number`.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise UserError(f"{assigned(name, value, quoted=True)}: {refusal(str(error), kind)}") from error


def assigned(name: str, value: Any, *, quoted: bool = False) -> str:
    """Return what a user wrote, `m=abc`; with `quoted`, text as TOML has it. A list or table is not repeated."""
    if isinstance(value, list | dict):
        return name
    text = json.dumps(value) if quoted and isinstance(value, str) else value_text(value)
    return f"{name}={shortened(text, LONGEST)}"


def refusal(message: str, kind: Any) -> str:
    """Return in plain words why msgspec refused a value for `kind`; `message` is its error, with or without a place."""
    text, _, place = message.partition(" - at ")
    of = "a value is " if "[" in place else ""
    if wanted := re.match(r"Expected `([\w| ]+)`, got", text):
        names = set(wanted[1].split(" | "))
        if "float" in names:
            names -= {"int"}
        return f"{of}not {', '.join(words for name, words in _KINDS.items() if name in names)}"
    if bound := re.match(r"Expected `(\w+)`(?: of length)? (>=|>|<=|<) (\S+)$", text):
        unit = _UNITS.get(bound[1])
        if unit and (bound[2], bound[3]) == (">=", "1"):
            return f"{of}must not be empty"
        limit = f"{_BOUNDS[bound[2]]} {f'{float(bound[3]):g}' if '.' in bound[3] else bound[3]}"
        return f"must have {limit} {unit}" if unit else f"must be {limit}"
    if text.startswith("Invalid enum value") and (known := choices(kind)):
        return f"{of}not one of {', '.join(known)}"
    return f"{text[:1].lower()}{text[1:]}"


def choices(kind: Any) -> list[str]:
    """Return the values that a type lists, as text; none if it is not one of a few values."""
    if get_origin(kind) is Literal:
        return [str(value) for value in get_args(kind)]
    return [value for part in get_args(kind) for value in choices(part)]


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
