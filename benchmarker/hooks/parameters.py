"""Options declared by types: the settings of every case, and a problem's own options.

A type and its `Meta` give the option, its help and its range, and convert what a user wrote, as an option or as a key.
"""

import dataclasses
import difflib
import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from inspect import get_annotations
from typing import Any, TypeVar, get_type_hints

import msgspec
from msgspec import inspect

from benchmarker.api.case import LONGEST_S, CaseRequest, Measuring, option_name
from benchmarker.api.errors import UserError
from benchmarker.api.fields import LARGEST
from benchmarker.api.problem import Divides, Generates, Problem
from benchmarker.files.toml import assigned, choices, refusal
from benchmarker.formatting import EXAMPLES_OF_DURATIONS, duration_s, value_text

P = TypeVar("P", bound=Problem)
LINES = "lines"
"""Key in the `extra` of a parameter's `Meta` that says that its value is lines of text, each from an option."""

_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}
_WHOLE = re.compile(r"(\d{1,18})([KMG]?)", re.ASCII)
_DOUBLED = re.compile(rf"{_WHOLE.pattern}\.\.{_WHOLE.pattern}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Field:
    """One parameter as shown to a user; `choices` is empty if any value of the type within `range` is valid.

    The value of one with `lines` is whole lines of text, so that a comma in it does not begin another value.
    """

    name: str
    type: str
    help: str
    default: Any
    accelerator_default: Any
    choices: tuple[str, ...] = ()
    range: str = ""
    lines: bool = False

    @property
    def option(self) -> str:
        """Its name on the command line."""
        return option(self.name)


@dataclass(frozen=True, slots=True)
class Setting(Field):
    """A field of `CaseRequest` or of `Measuring`.

    `values` stands for a value in help, and `default_text` for a default that is decided later.
    """

    annotation: Any = None
    values: str = ""
    default_text: str = ""

    @property
    def option(self) -> str:
        """Its name on the command line."""
        return option(option_name(self.name))

    def assignment(self, value: Any) -> str:
        """Return the command-line argument that sets it to a value."""
        return assignment(option_name(self.name), value)

    def converted(self, value: Any) -> Any:
        """Return the value that a user wrote in its type; raises ValueError that says why it is none."""
        if isinstance(value, str):
            if self.type == "time":
                try:
                    value = duration_s(value)
                except ValueError:
                    raise ValueError(f"not a time: write {EXAMPLES_OF_DURATIONS}") from None
            elif self.type == "float":
                with suppress(ValueError):
                    value = float(value)
            elif self.type == "int":
                value = _without_unit(value)
            elif self.choices:
                value = next((choice for choice in self.choices if choice == value.replace("-", "_")), value)
                if value not in self.choices:
                    raise ValueError(f"not one of {', '.join(self.choices)}")
        if _is_too_large(value):
            raise ValueError("too large")
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError("not a finite number")
        try:
            return msgspec.convert(value, self.annotation, strict=False)
        except msgspec.ValidationError as error:
            raise ValueError(refusal(str(error), self.annotation)) from None


@cache
def settings() -> Mapping[str, Setting]:
    """Return the settings of every case by name, those of its measuring among them."""
    made: dict[str, Setting] = {}
    for kind in (CaseRequest, Measuring):
        info = inspect.type_info(kind)
        assert isinstance(info, inspect.StructType)
        hints = get_type_hints(kind, include_extras=True)
        for field in info.fields:
            if field.name in ("params", "measuring"):
                continue
            assert isinstance(field.type, inspect.Metadata)
            extra = field.type.extra or {}
            name, values, limits = _describe_type(_bare(field.type))
            default = None if field.required else field.default
            made[field.name] = Setting(
                name=field.name,
                type="time" if field.name == "seconds" or field.name.endswith("_s") else name,
                help=(field.type.extra_json_schema or {})["description"],
                default=default,
                accelerator_default=default,
                choices=extra.get("choices") or _in_order(values, hints[field.name]),
                range=limits,
                annotation=hints[field.name],
                values=extra.get("values", ""),
                default_text=extra.get("default", ""),
            )
    return made


def option(name: str) -> str:
    """Return the command-line spelling of a parameter's name."""
    return "--" + name.replace("_", "-")


def assignment(name: str, value: Any) -> str:
    """Return the command-line argument that sets a parameter to a value, which may be text: `--causal`, `--m=8`."""
    if isinstance(value, bool) or value in ("true", "false"):
        return option(name) if value_text(value) == "true" else option(f"no_{name}")
    return f"{option(name)}={value}"


def names(problem: Problem | type[Problem]) -> list[str]:
    """Return the names of the options of a problem: of all its fields but the devices of the case.

    They are in the order of their definition, and those that a class declares are before those of its bases.
    """
    kind = problem if isinstance(problem, type) else type(problem)
    declared = [name for base in kind.__mro__ for name in get_annotations(base)]
    options = {field.name for field in dataclasses.fields(kind)} - {field.name for field in dataclasses.fields(Divides)}
    return [name for name in dict.fromkeys(declared) if name in options]


def values(problem: Problem) -> dict[str, Any]:
    """Return the options of a problem with their values."""
    return {name: getattr(problem, name) for name in names(problem)}


def fields(problem: type[Problem]) -> list[Field]:
    """Return the options of a problem, in the order of `names`."""
    info = inspect.type_info(problem)
    assert isinstance(info, inspect.DataclassType)
    hints, by_name = get_type_hints(problem), {field.name: field for field in info.fields}
    found = []
    for field in map(by_name.__getitem__, names(problem)):
        if field.required:
            raise UserError(f"the option {field.name} of {problem.__name__} has no default")
        described = field.type.extra_json_schema if isinstance(field.type, inspect.Metadata) else None
        name, values, limits = _describe_type(_bare(field.type))
        found.append(
            Field(
                name=field.name,
                type=name,
                help=(described or {}).get("description", ""),
                default=field.default,
                accelerator_default=problem.accelerator.get(field.name, field.default),
                choices=_in_order(values, hints[field.name]),
                range=limits,
                lines=isinstance(field.type, inspect.Metadata) and LINES in (field.type.extra or {}),
            )
        )
    return found


def _in_order(values: tuple[str, ...], annotation: Any) -> tuple[str, ...]:
    """Return the values of a choice in the order in which the type lists them."""
    return tuple(sorted(values, key=choices(annotation).index))


def _bare(kind: inspect.Type) -> inspect.Type:
    """Return a type without its annotations, and without None, which stands for a default that others decide.

    Of numbers or text, it is text: whatever is written is a value.
    """
    while isinstance(kind, inspect.Metadata | inspect.UnionType):
        if isinstance(kind, inspect.Metadata):
            kind = kind.type
        else:
            parts = [part for part in kind.types if not isinstance(part, inspect.NoneType)]
            kind = next((part for part in parts if isinstance(part, inspect.StrType)), parts[0])
    return kind


def _describe_type(kind: inspect.Type) -> tuple[str, tuple[str, ...], str]:
    match kind:
        case inspect.LiteralType(values):
            return "choice", tuple(str(value) for value in values), ""
        case inspect.BoolType():
            return "bool", (), ""
        case inspect.IntType() | inspect.FloatType():
            limits = [(kind.ge, "≥"), (kind.gt, ">"), (kind.le, "≤"), (kind.lt, "<")]
            text = " and ".join(f"{sign} {limit}" for limit, sign in limits if limit not in (None, LARGEST, LONGEST_S))
            return ("int" if isinstance(kind, inspect.IntType) else "float"), (), text
        case inspect.StrType():
            return "str", (), ""
    raise UserError(f"a parameter cannot be of type {kind}")


def resolve(
    problem: type[Problem], given: Mapping[str, Any], platform: str, spelt: Callable[[str], str] = option
) -> dict[str, Any]:
    """Return every parameter with its value: as given, otherwise the default for the platform.

    Raises `UserError` if the problem does not have a parameter or the parameter does not accept a value; it names the
    parameter as `spelt`: by default, as an option.
    """
    defaults: Mapping[str, Any] = {}
    if platform != "cpu":
        defaults = problem.accelerator_defaults(given) if issubclass(problem, Generates) else problem.accelerator
    return values(convert(problem, {**defaults, **given}, spelt))


def convert(kind: type[P], given: Mapping[str, Any], spelt: Callable[[str], str] = option) -> P:
    """Make a problem from plain values or text of its options; raises `UserError` that names the one `spelt` so."""
    known = names(kind)
    given = {
        name: _without_unit(value) if isinstance(value, str) and _type(kind, name) == "int" else value
        for name, value in given.items()
    }
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=2) or known
            raise UserError(f"no option {option(name)}; did you mean {' or '.join(map(option, near))}?")
    for name, value in given.items():
        if _is_too_large(value):
            raise UserError(f"{spelt(name)} is too large: at most {LARGEST} is possible")
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at ")
        at = re.match(r"`\$\.(\w+)", place)
        if at is None:
            raise UserError(message) from error
        name = at[1]
        raise UserError(
            f"{assigned(spelt(name), given[name])}: {refusal(message, get_type_hints(kind)[name])}"
        ) from error


def listed(problem: type[Problem], given: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the values of each given parameter, of which those with text in `lines` have one."""
    whole = {field.name for field in fields(problem) if field.lines}
    return {name: [value] if name in whole else values_of(option(name), value) for name, value in given.items()}


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


def _without_unit(text: str) -> str:
    """Return the text of a whole number without its unit, as in `4K` for 4096; any other text as it is."""
    number = _WHOLE.fullmatch(text.strip())
    return str(int(number[1]) * _UNITS[number[2]]) if number and number[2] else text


def _type(kind: type[Any], name: str) -> str:
    """Return the type of a parameter; empty if there is none of this name."""
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.DataclassType)
    return next((_describe_type(_bare(field.type))[0] for field in info.fields if field.name == name), "")


def _is_too_large(value: Any) -> bool:
    """Whether a value is an integer, or the text of one, that no record can hold."""
    if isinstance(value, str):
        digits = value.strip().lstrip("+-").lstrip("0")
        return digits.isdecimal() and (len(digits) > len(str(LARGEST)) or int(digits) > LARGEST)
    return isinstance(value, int) and abs(value) > LARGEST
