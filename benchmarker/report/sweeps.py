"""Sweeps: a metric over each numeric parameter that varies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarker.formatting import si
from benchmarker.hooks import names
from benchmarker.records.configurations import DEFAULTS, Value
from benchmarker.report.page_model import Axis, Column, Figure, Points, Section, Table

if TYPE_CHECKING:
    from benchmarker.report.study import Group, Study

FIRST = ("batch_size", "seq_len")
METRICS = (("samples_per_s", "samples/s"), ("tokens_per_s", "tokens/s"))
MOST_CURVES = 8
"""The number of distinct colours, symbols and dashes."""


def sweeps(study: Study) -> Section | None:
    """Return samples and tokens per second over each varied number; a line joins cases equal in all other factors."""
    every = {name for group in study.groups for name in group.factors} - {"seed", "gpu", *DEFAULTS}
    varied = sorted(name for name in every if _varies(study, name))
    varied = [*(name for name in FIRST if name in varied), *(name for name in varied if name not in FIRST)]
    figures = [
        figure
        for number, name in enumerate(varied)
        for metric, unit in METRICS
        if (figure := _figure(study, f"sweep-{number}-{metric}", name, metric, unit))
    ]
    return Section("sweeps", "Sweeps", (), tuple(figures)) if figures else None


def _varies(study: Study, name: str) -> bool:
    values = {group.factors.get(name) for group in study.groups}
    return len(values) > 1 and all(_number(value) is not None for value in values)


def _number(value: Value) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _figure(study: Study, key: str, name: str, metric: str, unit: str) -> Figure | None:
    curves: dict[tuple[tuple[str, Value], ...], list[tuple[float, float, Group]]] = {}
    for group in study.groups:
        x, y = _number(group.factors.get(name)), study.median(group, metric)
        if x is not None and y is not None:
            rest = ((group.side, group.series), *((key, value) for key, value in group.factors.items() if key != name))
            curves.setdefault(rest, []).append((x, y, group))
    lines = {rest: sorted(of, key=lambda each: each[0]) for rest, of in curves.items() if len(of) > 1}
    if not lines:
        return None
    cases = names.names([dict(rest[1:]) for rest in lines], study.apart, [name for _ in lines]).each
    sides = [group.side for ((_, _, group), *_) in lines.values()]
    labels = [" ".join(filter(None, pair)) or unit for pair in zip(cases, sides, strict=True)]
    pairs = list(zip(labels, lines.values(), strict=True))
    several = len(study.sides) > 1
    marks = tuple(
        Points(
            label,
            of[0][2].series if several else index,
            tuple(x for x, _, _ in of),
            tuple(y for _, y, _ in of),
            tuple(f"{label}, {name}={x:g}: {si(y, '1/s')} {unit}" for x, y, _ in of),
            look="line and dots",
            symbol=index,
        )
        for index, (label, of) in enumerate(pairs[:MOST_CURVES])
    )
    values = [x for of in lines.values() for x, _, _ in of]
    left = (
        ""
        if len(pairs) <= MOST_CURVES
        else f"Only the first {MOST_CURVES} of {len(pairs)} lines are drawn; the data table has all."
    )
    rows = tuple((label, x, y, len(group.ok)) for label, of in pairs for x, y, group in of)
    columns = (
        Column("line"),
        Column(name, numeric=True),
        Column(metric, "1/s", numeric=True),
        Column("trials", numeric=True),
    )
    return Figure(
        key,
        f"{unit} over {name}",
        "Each dot is the median over the trials of a configuration. A line joins configurations that differ only in "
        "this parameter.",
        Axis(name, log=min(values) > 0 and max(values) >= 8 * min(values)),
        marks,
        Table(columns, rows),
        y=Axis(unit, limit=(0.0,)),
        left_out=left,
    )
