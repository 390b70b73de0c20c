"""Convert between a problem's parameters (a frozen dataclass) and command-line options or plain values."""

from __future__ import annotations

import dataclasses
import difflib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import msgspec
from msgspec import inspect

from benchmarker.api.errors import UserError
from benchmarker.api.numbers import LARGEST

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarker.api.problem import Problem


@dataclass(frozen=True, slots=True)
class Field:
    """One parameter as shown to a user; `choices` is empty if any value of the type within `range` is valid."""

    name: str
    type: str
    help: str
    default: Any
    accelerator_default: Any
    choices: tuple[str, ...] = ()
    range: str = ""

    @property
    def option(self) -> str:
        """Its name on the command line."""
        return option(self.name)


def option(name: str) -> str:
    """Return the command-line spelling of a parameter's name."""
    return "--" + name.replace("_", "-")


def assignment(name: str, value: Any) -> str:
    """Return the command-line argument that sets a parameter to a value."""
    if isinstance(value, bool):
        return option(name) if value else option(f"no_{name}")
    return f"{option(name)}={value}"


def fields(problem: Problem) -> list[Field]:
    """Return the parameters of a problem, in order of their definition."""
    info = inspect.type_info(problem.params)
    assert isinstance(info, inspect.DataclassType)
    hints = get_type_hints(problem.params)
    found = []
    for field in info.fields:
        if field.required:
            raise UserError(f"the parameter {field.name} of {problem.params.__name__} has no default")
        kind, description = field.type, ""
        if isinstance(kind, inspect.Metadata):
            description = (kind.extra_json_schema or {}).get("description", "")
            kind = kind.type
        if isinstance(kind, inspect.UnionType):  # a type or None, if the default follows from other parameters
            kind = next(part for part in kind.types if not isinstance(part, inspect.NoneType))
            if isinstance(kind, inspect.Metadata):
                kind = kind.type
        name, choices, limits = _describe_type(kind)
        found.append(
            Field(
                name=field.name,
                type=name,
                help=description,
                default=field.default,
                accelerator_default=problem.accelerator.get(field.name, field.default),
                choices=tuple(sorted(choices, key=[str(value) for value in get_args(hints[field.name])].index)),
                range=limits,
            )
        )
    return found


def _describe_type(kind: inspect.Type) -> tuple[str, tuple[str, ...], str]:
    match kind:
        case inspect.LiteralType(values):
            return "choice", tuple(str(value) for value in values), ""
        case inspect.BoolType():
            return "bool", (), ""
        case inspect.IntType() | inspect.FloatType():
            limits = [(kind.ge, "≥"), (kind.gt, ">"), (kind.le, "≤"), (kind.lt, "<")]
            text = " and ".join(f"{sign} {limit}" for limit, sign in limits if limit is not None)
            return ("int" if isinstance(kind, inspect.IntType) else "float"), (), text
        case inspect.StrType():
            return "str", (), ""
    raise UserError(f"a parameter cannot be of type {kind}")


def resolve(problem: Problem, given: Mapping[str, Any], platform: str) -> dict[str, Any]:
    """Return every parameter with its value: as given, otherwise the default for the platform.

    Raises `UserError` if the problem does not have a parameter or the parameter does not accept a value.
    """
    defaults = {} if platform == "cpu" else problem.accelerator_defaults(given)
    return dataclasses.asdict(convert(problem.params, {**defaults, **given}))


def convert(kind: type[Any], values: Mapping[str, Any]) -> Any:
    """Convert plain values or text to a problem's parameters; raises `UserError` that names the option."""
    names = [field.name for field in dataclasses.fields(kind)]
    for name in values:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=2) or names
            raise UserError(f"no option {option(name)}; did you mean {' or '.join(map(option, near))}?")
    for name, value in values.items():
        if _is_too_large(value):
            raise UserError(f"{option(name)} is too large: at most {LARGEST} is possible")
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at ")
        at = re.match(r"`\$\.(\w+)", place)
        if at is None:
            raise UserError(message) from error
        text = message.replace("Expected", "expected").replace("Invalid", "invalid")
        raise UserError(f"{option(at.group(1))}={values[at.group(1)]}: {text}") from error


def _is_too_large(value: Any) -> bool:
    """Whether a value is an integer, or the text of one, that no record can hold."""
    if isinstance(value, str):
        digits = value.strip().lstrip("+-").lstrip("0")
        return digits.isdecimal() and (len(digits) > len(str(LARGEST)) or int(digits) > LARGEST)
    return isinstance(value, int) and abs(value) > LARGEST
