"""Types of options, and what a shell completes for those that take a name; completing imports no framework."""

import math
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from benchmarker.api.errors import UserError
from benchmarker.api.fields import LARGEST
from benchmarker.files.toml import assigned
from benchmarker.formatting import EXAMPLES_OF_DURATIONS, duration_s, share
from benchmarker.hooks import registry
from benchmarker.hooks.parameters import values_of

_F = TypeVar("_F", bound=Callable[..., Any])
LARGEST_NUMBER = 1e9
"""Largest number of an option: as a time in s, 31 years."""


class RefusedValue(click.BadParameter):
    """A wrong value of an option: `--trials=x: not a whole number`."""

    def __init__(self, value: Any, reason: str, param: click.Parameter | None, ctx: click.Context | None) -> None:
        super().__init__(reason, ctx, param)
        self.value = value

    def format_message(self) -> str:
        """Return the option with its value, and what is wrong with it."""
        option = max(self.param.opts, key=len) if isinstance(self.param, click.Option) else ""
        return f"{assigned(option, self.value) if option else self.value}: {self.message}"


class Choice(click.Choice[str]):
    """One of a few words; `mixed-bf16` is understood, but `mixed_bf16` is what is printed, as everywhere else."""

    def normalize_choice(self, choice: object, ctx: click.Context | None) -> str:
        """Return a word as the choices spell it."""
        text = str(choice)
        return next((own for own in self.choices if own.replace("_", "-") == text.replace("_", "-")), text)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the word."""
        word = self.normalize_choice(value, ctx)
        if word not in self.choices:
            raise RefusedValue(value, f"not one of {', '.join(self.choices)}", param, ctx)
        return word


class Share(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.5
    """A share written as `2%` or `0.02`, greater than 0 and less than 1."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the share as a float."""
        if isinstance(value, float):
            return value
        try:
            return share(value)
        except ValueError as error:
            raise RefusedValue(value, str(error), param, ctx) from None


class Number(click.FloatRange):
    """A finite number within a range; `nan` and `inf` are rejected."""

    name = "number"
    wanted = "a number"

    def _describe_range(self) -> str:
        return _limits(self)

    def parsed(self, value: Any) -> float:
        """Return the number that a text is; raises ValueError if it is none."""
        return float(value)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number as a float."""
        try:
            number = self.parsed(value)
        except ValueError:
            raise RefusedValue(value, f"not {self.wanted}", param, ctx) from None
        if not math.isfinite(number):
            raise RefusedValue(value, "not a finite number", param, ctx)
        outside = f"must be at most {LARGEST_NUMBER:g}" if number > LARGEST_NUMBER else _outside(number, self)
        if outside:
            raise RefusedValue(value, outside, param, ctx)
        return number


class Duration(Number):
    """A time within a range in seconds, written as `250ms`, `90s`, `10m` or `1.5h`; a bare number is in `unit`."""

    name = "time"
    wanted = f"a time: write {EXAMPLES_OF_DURATIONS}"

    def __init__(self, unit: str = "s", **bounds: Any) -> None:
        super().__init__(**bounds)
        self.unit = unit

    def parsed(self, value: Any) -> float:
        """Return the seconds."""
        return duration_s(value, self.unit) if isinstance(value, str) else float(value)


class Several(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.5
    """A list of values of a type, each once: `1,2,4`, or `1..4`, which is 1 and its doubles; or one of `words`."""

    name = "list"

    def __init__(self, one: Any = click.STRING, words: Sequence[str] = ()) -> None:
        self.one = one
        self.words = words

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[Any]:
        """Return the values."""
        if not isinstance(value, str):
            return value  # type: ignore[no-any-return]  # click converts twice
        option = max(param.opts, key=len) if param else self.name
        if not value.strip(", "):
            raise RefusedValue(value, "no value is given", param, ctx)
        texts = [text.strip() for text in values_of(option, value)]
        values = [text if text in self.words else self.one.convert(text, param, ctx) for text in texts]
        return list(dict.fromkeys(values))

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return what completes the last value."""
        given, comma, last = incomplete.rpartition(",")
        completed = self.one.shell_complete(ctx, param, last)
        return [CompletionItem(given + comma + item.value) for item in completed]


class Folder(click.Path):
    """A folder, which need not exist."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, file_okay=False)
        self.name = "folder"

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """Return the path; an empty one is refused, as it would silently mean the present folder."""
        if value == "":
            self.fail("no folder is named; . is the current one", param, ctx)
        return super().convert(value, param, ctx)


class File(click.Path):
    """A file, which need not exist; a folder is refused if `dir_okay` is false."""

    def __init__(self, *, dir_okay: bool = True) -> None:
        super().__init__(path_type=Path, dir_okay=dir_okay)
        self.name = "file"


def output_option(text: str) -> Callable[[_F], _F]:
    """Return the option `--output`, a file."""
    return click.option("-o", "--output", type=File(dir_okay=False), help=text)


def figure_option(what: str) -> Callable[[_F], _F]:
    """Return the option `--output` for a figure."""
    return output_option(f"{what} as a figure for a paper, .svg, .pdf or .png, and its data beside it as .csv.")


def results_option(text: str = "Folder for the records.") -> Callable[[_F], _F]:
    """Return the option `--results`, a folder."""
    return click.option("--results", type=Folder(), default=Path("results"), help=text)


def frameworks_option(text: str, *names: str) -> Callable[[_F], _F]:
    """Return the option `--framework`, several names in one text."""
    return click.option(
        "--framework", *names, metavar="NAME[,NAME...]", shell_complete=complete_plugins("framework"), help=text
    )


def all_of(*options: Callable[[Any], Any]) -> Callable[[_F], _F]:
    """Return a decorator that adds several options to a command."""

    def decorate(function: _F) -> _F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def refuse_given(names: Collection[str], why: str) -> None:
    """Raise `UserError` if one of these options is given to the command, with its name in place of `{}`."""
    context = click.get_current_context()
    for param in context.command.params:
        if param.name in names and context.get_parameter_source(param.name) is not ParameterSource.DEFAULT:
            raise UserError(why.format(param.opts[0]))


class Integer(click.IntRange):
    """An integer within a range, and small enough for a record."""

    name = "n"

    def _describe_range(self) -> str:
        return _limits(self)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number."""
        if isinstance(value, str) and len(value) > len(str(LARGEST)):
            raise RefusedValue(f"{value[:20]}...", "too large", param, ctx)
        try:
            number = int(value)
        except ValueError:
            raise RefusedValue(value, "not a whole number", param, ctx) from None
        if outside := "too large" if number > LARGEST else _outside(number, self):
            raise RefusedValue(value, outside, param, ctx)
        return number


def _limits(limits: click.FloatRange | click.IntRange) -> str:
    """Return a range as help texts have it: `> 0 and ≤ 1`."""
    low, high = limits.min, limits.max
    least = [] if low is None else [f"{'>' if limits.min_open else '≥'} {low:g}"]
    return " and ".join([*least, *([] if high is None else [f"{'<' if limits.max_open else '≤'} {high:g}"])])


def _outside(number: float, limits: click.FloatRange | click.IntRange) -> str | None:
    """Return how a number must be to lie within limits; None if it does."""
    low, high = limits.min, limits.max
    if low is not None and (number < low or (limits.min_open and number == low)):
        return f"must be {'greater than' if limits.min_open else 'at least'} {low:g}"
    if high is not None and (number > high or (limits.max_open and number == high)):
        return f"must be {'less than' if limits.max_open else 'at most'} {high:g}"
    return None


Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def complete_plugin(kind: str) -> Complete:
    """Complete the name of a plugin of a kind."""
    return lambda _context, _param, incomplete: _beginning(incomplete, _plugins(kind))


def complete_plugins(kind: str) -> Complete:
    """Complete the last of several names of plugins, separated by commas; those that are there are not repeated."""

    def complete(_context: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        given, comma, last = incomplete.rpartition(",")
        names = (name for name in _plugins(kind) if name not in given.split(","))
        return [CompletionItem(given + comma + item.value) for item in _beginning(last, names)]

    return complete


def complete_suite(_context: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the name of a suite."""
    from benchmarker.planning.suites import names

    return _beginning(incomplete, names())


def complete_plan_file(_context: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the path of a plan: TOML files that begin like this, else a folder."""
    folder, _, beginning = incomplete.rpartition("/")
    folder += "/" if "/" in incomplete else ""
    try:
        names = sorted(path.name for path in Path(folder or ".").iterdir() if path.suffix == ".toml")
    except OSError:
        names = []
    items = [CompletionItem(folder + item.value) for item in _beginning(beginning, names)]
    return items or [CompletionItem(incomplete, type="dir")]


def _plugins(kind: str) -> list[str]:
    return [plugin.name for plugin in registry.registered(kind).values()]


def _beginning(incomplete: str, names: Iterable[str]) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]
