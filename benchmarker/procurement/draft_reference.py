"""Draft a reference from records that are known to be good."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Literal

from benchmarker.api.case import Measuring
from benchmarker.api.errors import UserError
from benchmarker.hooks.names import names
from benchmarker.procurement.reference import FORMAT_VERSION
from benchmarker.records.configurations import Configuration, Factors, Value, configurations, varying

if TYPE_CHECKING:
    from benchmarker.hooks.metrics import Derive
    from benchmarker.records.record import Record


@dataclass(frozen=True, slots=True)
class Drafted:
    """A case of the reference: its factors, and its lower or upper bound; `measured` is the value the bound is from."""

    name: str
    match: Factors
    metric: str
    bound: Literal["min", "max"]
    limit: float
    measured: str
    trials: int


def draft(records: Sequence[Record], metric: str, tolerance: float, derive: Derive) -> tuple[list[Drafted], list[str]]:
    """Return the cases of a reference that these records meet, and what was left out of it, with reasons.

    A configuration may be worse than its median by the tolerance, and better by any amount. A configuration with a
    failed trial, or with a trial without a value, is left out. Raises `UserError` if the metric is unknown.
    """
    if metric not in (known := derive(records[0])):
        raise UserError(f"no metric is named {metric!r}; there are: {', '.join(known)}")
    groups = configurations(records)
    differing = varying([group.factors for group in groups])
    cases, left_out = [], []
    for name, group in zip(names([group.factors for group in groups]).whole, groups, strict=True):
        found = [derive(record)[metric] for record in group.records]
        values = [each.value for each in found if each.value is not None]
        if reason := _why_not(group, len(values), [each.reason for each in found]):
            left_out.append(f"{name}: {reason}")
            continue
        worse = -1 if found[0].better == "higher" else 1
        cases.append(
            Drafted(
                name=name,
                match={
                    factor: value
                    for factor, value in group.factors.items()
                    if value is not None and (factor in differing or factor not in Measuring.__struct_fields__)
                },
                metric=metric,
                bound="min" if worse < 0 else "max",
                limit=float(f"{median(values) + worse * tolerance * abs(median(values)):.6g}"),
                measured=f"median of {len(values)} trials: {median(values):.6g} {found[0].unit}",
                trials=len(values),
            )
        )
    return cases, left_out


def _why_not(group: Configuration, values: int, reasons: Sequence[str | None]) -> str | None:
    """Return why a configuration cannot be part of a reference, or None."""
    if errors := [record.error for record in group.records if record.error]:
        return f"{len(errors)} of {len(group.records)} trials failed: {errors[0].kind}: {errors[0].message}"
    return None if values == len(reasons) else next(reason for reason in reasons if reason)


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
