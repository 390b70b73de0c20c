"""Read references: TOML files with the bounds that measured cases must meet (docs/procurement.md)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from benchmarker.api.errors import UserError
from benchmarker.files import toml, values
from benchmarker.records.factors import label, take_match

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarker.records.factors import Factors

FORMAT_VERSION = 1
METRIC = "samples_per_s"


class Table(Struct):
    """A case as written in the file."""

    match: dict[str, Any]
    name: Annotated[str, Meta(min_length=1)] | None = None
    metric: str = METRIC
    min: float | None = None
    max: float | None = None
    value: float | None = None
    tolerance: float | str | None = None
    trials: Annotated[int, Meta(ge=1)] = 1


@dataclass(frozen=True, slots=True)
class Wanted:
    """Bounds on the median of a metric, over at least `trials` trials, of every case with the factors `match`."""

    name: str
    match: Factors
    metric: str
    low: float | None
    high: float | None
    trials: int


def read(path: Path) -> list[Wanted]:
    """Read the cases in a file. Raises `UserError` naming the file and the key if the file is not valid."""
    found = toml.load(path)
    try:
        version = values.take("format_version", found.pop("format_version", FORMAT_VERSION), int)
        if version != FORMAT_VERSION:
            raise UserError(f"format_version is {version}; this version of benchmarker reads {FORMAT_VERSION}")
        tables = values.take("case", found.pop("case", []), list[dict[str, Any]])
        if found:
            raise UserError(f"there is no key {next(iter(found))}; there are: format_version, case")
        if not tables:
            raise UserError("it has no [[case]]")
        return [_wanted(f"case {number}", table) for number, table in enumerate(tables, 1)]
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def _wanted(key: str, table: dict[str, Any]) -> Wanted:
    given = toml.take_table(key, table, Table)
    match = take_match(f"{key}.match", given.match)
    low, high = given.min, given.max
    if (given.value is None) != (given.tolerance is None):
        raise UserError(f"{key}: value and tolerance go together; give both, or min and max")
    if given.value is not None:
        if low is not None or high is not None:
            raise UserError(f"{key}: value and tolerance replace min and max; give only one of the pairs")
        margin = abs(given.value) * _share(f"{key}.tolerance", given.tolerance)
        low, high = given.value - margin, given.value + margin
    if low is None and high is None:
        raise UserError(f"{key} has no bound; give min, max, or value and tolerance")
    if low is not None and high is not None and low > high:
        raise UserError(f"{key}: min is above max")
    return Wanted(given.name or label(match, list(match)) or "any", match, given.metric, low, high, given.trials)


def _share(key: str, value: float | str | None) -> float:
    """Return a share given as 0.05 or "5%"."""
    try:
        share = float(value[:-1]) / 100 if isinstance(value, str) and value.endswith("%") else float(value or 0)
    except ValueError:
        share = math.nan
    if not 0 < share < 1:
        raise UserError(f'{key}: {value!r} is not a share between 0 and 1; write "5%" or 0.05')
    return share
