"""References: TOML files with the bounds that measured cases must meet (docs/procurement.md), read or drafted.

One is drafted from records that are known to be good.
"""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, stdev
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from benchmarker.api.case import Measuring
from benchmarker.api.errors import UserError
from benchmarker.api.metric import Metric
from benchmarker.comparing import disturbances
from benchmarker.files import toml
from benchmarker.formatting import count, part
from benchmarker.hooks.cases import Cases, Configuration
from benchmarker.hooks.metrics import Derive
from benchmarker.hooks.names import names
from benchmarker.records.factors import Factors, Value, label, take_match, varying
from benchmarker.stats.quantile_interval import median_allowance

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
    document = toml.load(path)
    try:
        version = toml.take("format_version", document.pop("format_version", FORMAT_VERSION), int)
        if version != FORMAT_VERSION:
            raise UserError(f"format_version is {version}; this version of benchmarker reads {FORMAT_VERSION}")
        tables = toml.take("case", document.pop("case", []), list[dict[str, Any]])
        if document:
            raise UserError(f"there is no key {next(iter(document))}; there are: format_version, case")
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


ALPHA = 0.05
"""Probability with which a machine as good as the measured one misses any of the bounds by chance."""
WIDE = 0.1
"""Share of the median; a bound that is further away is reported.

A machine with one of its eight memory channels or accelerators missing is 12.5% slower; a wide bound passes even that.
"""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How much worse than the median a value may be, as a share: instead of the scatter, or in addition to it."""

    share: float
    adds: bool = False


@dataclass(frozen=True, slots=True)
class Drafted:
    """A case of the reference: its factors, and its lower or upper bound; `measured` is what the bound is from."""

    name: str
    match: Factors
    metric: str
    bound: Literal["min", "max"]
    limit: float
    measured: str
    trials: int


def refusal(cases: Cases) -> str | None:
    """Return why no reference should come from these cases, because most trials of a case were disturbed; or None.

    The bound of such a case is that of the disturbance: far below what the machine does, so that anything passes.
    """
    most = sum(disturbances.of_records(configuration.records).most for configuration in cases)
    if not most:
        return None
    every = disturbances.of_records(cases.records)
    return f"most trials of {part(most, len(cases), 'case')} were disturbed ({every}); {every.advice}"


def draft(
    cases: Cases, metric: str, tolerance: Tolerance | None, derive: Derive
) -> tuple[list[Drafted], list[str], list[str]]:
    """Return the cases of a reference that these cases meet, what was left out with reasons, and notes on bounds.

    A configuration may be better than its median by any amount, and worse as far as the scatter of its trials or the
    tolerance allows. The bounds from scatter hold together: a machine as good as this one meets all of them with
    probability 1 - `ALPHA`. A configuration with a failed trial, with a trial without a value, or with too few trials
    to see their scatter is left out. Raises `UserError` if the metric is unknown.
    """
    if metric not in (known := derive(cases[0].records[0])):
        raise UserError(f"no metric is named {metric!r}; there are: {', '.join(known)}")
    factors = [configuration.factors for configuration in cases]
    differing = varying(factors)
    scatters = tolerance is None or tolerance.adds
    kept: list[tuple[str, Configuration, list[Metric], list[float]]] = []
    left_out = []
    for name, group in zip(names(factors).whole, cases, strict=True):
        metrics = [derive(record)[metric] for record in group.records]
        values = [metric.value for metric in metrics if metric.value is not None]
        if reason := _why_not(group, values, [metric.reason for metric in metrics], scatters=scatters):
            left_out.append(f"{name}: {reason}")
        else:
            kept.append((name, group, metrics, values))
    drafted, notes = [], []
    for name, group, metrics, values in kept:
        worse = -1 if metrics[0].better == "higher" else 1
        factor, why = _allowed(values, worse, tolerance, len(kept))
        if scatters and abs(factor - 1) > WIDE:
            notes.append(f"{name}: the bound is {_change(factor)} than the median; more trials would narrow it")
        disturbed = disturbances.of_records(group.records)
        drafted.append(
            Drafted(
                name=name,
                match={
                    factor: value
                    for factor, value in group.factors.items()
                    if value is not None and (factor in differing or factor not in Measuring.__struct_fields__)
                },
                metric=metric,
                bound="min" if worse < 0 else "max",
                limit=float(f"{median(values) + (factor - 1) * abs(median(values)):.6g}"),
                measured=f"median of {count(len(values), 'trial')}: {median(values):.6g} {metrics[0].unit}; {why}"
                + (f"; {part(disturbed.number, disturbed.of, 'trial')} disturbed" if disturbed.number else ""),
                trials=len(values),
            )
        )
    return drafted, left_out, notes


def _allowed(values: Sequence[float], worse: int, tolerance: Tolerance | None, cases: int) -> tuple[float, str]:
    """Return the bound as a multiple of the median, and where it is from; `worse` is the sign of a worse value."""
    share = 1 + worse * tolerance.share if tolerance else 1.0
    if tolerance and not tolerance.adds:
        return share, f"{100 * tolerance.share:.3g}% tolerated"
    logs = [math.log(value) for value in values]
    factor = math.exp(worse * median_allowance(logs, ALPHA / cases))
    scatter = f"scatter {math.expm1(stdev(logs)):.2%}, so {len(values)} new trials may be {_change(factor)}"
    return factor * share, scatter + (f"; {100 * tolerance.share:.3g}% more tolerated" if tolerance else "")


def _change(factor: float) -> str:
    return f"{abs(factor - 1):.2%} {'lower' if factor < 1 else 'higher'}"


def _why_not(
    group: Configuration, values: Sequence[float], reasons: Sequence[str | None], *, scatters: bool
) -> str | None:
    """Return why a configuration cannot be part of a reference, or None."""
    if errors := [record.error for record in group.records if record.error]:
        return f"{part(len(errors), len(group.records), 'trial')} failed: {errors[0].kind}: {errors[0].message}"
    if len(values) < len(reasons):
        return next(reason for reason in reasons if reason)
    if scatters and len(values) < 2:
        return "a single trial shows no scatter; measure several, or give --tolerance"
    if scatters and min(values) <= 0:
        return "a value is not above 0, so its scatter is no share; give --tolerance"
    return None


def text(cases: Sequence[Drafted]) -> str:
    """Return these cases in the format that `reference.read` reads."""
    blocks = [f"format_version = {FORMAT_VERSION}\n"]
    for case in cases:
        match = ", ".join(f"{_key(name)} = {_value(value)}" for name, value in case.match.items())
        blocks.append(
            f"[[case]]\nname = {_value(case.name)}\nmatch = {{ {match} }}\nmetric = {_value(case.metric)}\n"
            f"{case.bound} = {_value(case.limit)}  # {case.measured}\ntrials = {case.trials}\n"
        )
    return "\n".join(blocks)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _value(name)


def _value(value: Value) -> str:
    """Return a value in TOML syntax, which is that of JSON except that DEL must be escaped."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
