"""Option types: shares, durations, numbers and designs."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any, TypeVar

import click

from benchmarker.api.numbers import LARGEST
from benchmarker.formatting import duration_s

T = TypeVar("T")
LARGEST_NUMBER = 1e9
"""Largest number of an option: as a time in s, 31 years."""


class Share(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.5
    """A share written as `2%` or `0.02`, greater than 0 and less than 1."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the share as a float."""
        if isinstance(value, float):
            return value
        try:
            share = float(value[:-1]) / 100 if value.endswith("%") else float(value)
        except ValueError:
            share = 0.0
        if not 0 < share < 1:
            self.fail(f"{value!r} is not a share: write 2% or 0.02", param, ctx)
        return share


class Number(click.FloatRange):
    """A finite number within a range; `nan` and `inf` are rejected."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number as a float."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        if number > LARGEST_NUMBER:
            self.fail(f"{value!r} is larger than {LARGEST_NUMBER:g}", param, ctx)
        return number


class Duration(Number):
    """A time within a range in seconds, written as `250ms`, `90s`, `10m` or `1.5h`; a bare number is in `unit`."""

    name = "time"

    def __init__(self, unit: str = "s", **bounds: Any) -> None:
        super().__init__(**bounds)
        self.unit = unit

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds as a float."""
        if isinstance(value, str):
            try:
                value = duration_s(value, self.unit)
            except ValueError as error:
                self.fail(str(error), param, ctx)
        return super().convert(value, param, ctx)


class Folder(click.Path):
    """A folder, which need not exist."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, file_okay=False)

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """Return the path; an empty one is refused, as it would silently mean the present folder."""
        if value == "":
            self.fail("no folder is named; . is the present one", param, ctx)
        return super().convert(value, param, ctx)


class Integer(click.IntRange):
    """An integer within a range, and small enough for a record."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number."""
        if isinstance(value, str) and len(value) > len(str(LARGEST)):
            self.fail(f"{value[:20]!r}... is too large", param, ctx)
        number: int = super().convert(value, param, ctx)
        if number > LARGEST:
            self.fail(f"{value!r} is too large", param, ctx)
        return number


class Design(click.Choice[str]):
    """The design of a run; a former name is accepted and reported."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the current name of the design."""
        if value == "blocks":
            value = renamed("--design=blocks", "--design=rounds", "rounds")
        return super().convert(value, param, ctx)


def renamed(before: str, now: str, value: T) -> T:
    """Report on standard error that an option or value was renamed; return the value."""
    click.echo(f"benchmarker: {before} is now called {now}", err=True)
    return value
