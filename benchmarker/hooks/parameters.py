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
from benchmarker.api.fields import LARGEST
from benchmarker.files.toml import assigned, refusal
from benchmarker.formatting import value_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from benchmarker.api.problem import Problem

_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}
_WHOLE = re.compile(r"(\d{1,18})([KMG]?)", re.ASCII)
_DOUBLED = re.compile(rf"{_WHOLE.pattern}\.\.{_WHOLE.pattern}", re.ASCII)


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
    """Return the command-line argument that sets a parameter to a value, which may be text: `--causal`, `--m=8`."""
    if isinstance(value, bool) or value in ("true", "false"):
        return option(name) if value_text(value) == "true" else option(f"no_{name}")
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
        described = field.type.extra_json_schema if isinstance(field.type, inspect.Metadata) else None
        name, choices, limits = _describe_type(_bare(field.type))
        found.append(
            Field(
                name=field.name,
                type=name,
                help=(described or {}).get("description", ""),
                default=field.default,
                accelerator_default=problem.accelerator.get(field.name, field.default),
                choices=tuple(sorted(choices, key=[str(value) for value in get_args(hints[field.name])].index)),
                range=limits,
            )
        )
    return found


def _bare(kind: inspect.Type) -> inspect.Type:
    """Return a type without its annotations, and without None, which stands for a default that others decide."""
    while isinstance(kind, inspect.Metadata | inspect.UnionType):
        if isinstance(kind, inspect.Metadata):
            kind = kind.type
        else:
            kind = next(part for part in kind.types if not isinstance(part, inspect.NoneType))
    return kind


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


def resolve(
    problem: Problem, given: Mapping[str, Any], platform: str, spelt: Callable[[str], str] = option
) -> dict[str, Any]:
    """Return every parameter with its value: as given, otherwise the default for the platform.

    Raises `UserError` if the problem does not have a parameter or the parameter does not accept a value; it names the
    parameter as `spelt`: by default, as an option.
    """
    defaults = {} if platform == "cpu" else problem.accelerator_defaults(given)
    return dataclasses.asdict(convert(problem.params, {**defaults, **given}, spelt))


def convert(kind: type[Any], values: Mapping[str, Any], spelt: Callable[[str], str] = option) -> Any:
    """Convert plain values or text to a problem's parameters; raises `UserError` that names the one `spelt` so."""
    names = [field.name for field in dataclasses.fields(kind)]
    values = {name: _without_unit(value, kind, name) for name, value in values.items()}
    for name in values:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=2) or names
            raise UserError(f"no option {option(name)}; did you mean {' or '.join(map(option, near))}?")
    for name, value in values.items():
        if _is_too_large(value):
            raise UserError(f"{spelt(name)} is too large: at most {LARGEST} is possible")
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at ")
        at = re.match(r"`\$\.(\w+)", place)
        if at is None:
            raise UserError(message) from error
        name = at[1]
        raise UserError(
            f"{assigned(spelt(name), values[name])}: {refusal(message, get_type_hints(kind)[name])}"
        ) from error


def values_of(option: str, value: Any) -> list[Any]:
    """Return the values in the text of a list, `8,16` or `1K..1G`, which is 1K and its doubles up to 1G; or the value.

    Raises `UserError` that names the `option` if there is no value between two commas or in a range.
    """
    if not isinstance(value, str) or not value:
        return [value]
    found: list[str] = []
    for word in value.split(","):
        if not word:
            raise UserError(f"{option}={value}: a value is missing between two commas")
        values = _doubled(word)
        if not values:
            raise UserError(f"{option}={value}: in a range, the lower value comes first and is at least 1")
        found += values
    return list(dict.fromkeys(found))


def _doubled(word: str) -> list[str]:
    """Return the values of a range, from the first on each twice the one before; any other word as it is."""
    ends = _DOUBLED.fullmatch(word)
    if ends is None:
        return [word]
    low, high = (int(ends[first]) * _UNITS.get(ends[first + 1], 1) for first in (1, 3))
    return [str(low << doublings) for doublings in range((high // low).bit_length())] if low else []


def _without_unit(value: Any, kind: type[Any], name: str) -> Any:
    """Return the text of a whole number without its unit, as in `4K` for 4096; any other value as it is."""
    number = _WHOLE.fullmatch(value.strip()) if isinstance(value, str) else None
    if number is None or not number[2] or _description(kind, name)[0] != "int":
        return value
    return str(int(number[1]) * _UNITS[number[2]])


def _description(kind: type[Any], name: str) -> tuple[str, tuple[str, ...], str]:
    """Return the type, the choices and the range of a parameter; all are empty if there is none of this name."""
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.DataclassType)
    found = [_describe_type(_bare(field.type)) for field in info.fields if field.name == name]
    return found[0] if found else ("", (), "")


def _is_too_large(value: Any) -> bool:
    """Whether a value is an integer, or the text of one, that no record can hold."""
    if isinstance(value, str):
        digits = value.strip().lstrip("+-").lstrip("0")
        return digits.isdecimal() and (len(digits) > len(str(LARGEST)) or int(digits) > LARGEST)
    return isinstance(value, int) and abs(value) > LARGEST
