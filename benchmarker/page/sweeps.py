"""Sweeps: a metric over each numeric parameter that varies, beside what is predicted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarker.api.metric import Plot
from benchmarker.formatting import si
from benchmarker.hooks import names
from benchmarker.page.page_model import Axis, Figure, Points, Section, drawn, table_of
from benchmarker.page.study import MEDIAN, Group, Study
from benchmarker.records.factors import DEFAULTS, Value
from benchmarker.stats.median_interval import median_interval
from benchmarker.tables.table import Column, number

FIRST = ("batch_size", "seq_len", "prompt_len", "depth")
LENGTHS = ("prompt_len", "depth", "new_tokens")
"""Lengths of a text, with which the room for it, `seq_len`, grows unless it is given."""
MOST_CURVES = 8
"""The number of distinct colours, symbols and dashes."""
PREDICTED = 7
"""The series of predictions of several lines: grey."""


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A metric to draw: its name, its unit, and how it is drawn."""

    metric: str
    unit: str
    plot: Plot


@dataclass(frozen=True, slots=True)
class _Dot:
    """A configuration on a line: the median over its trials, its interval from six trials on, and the prediction."""

    x: float
    y: float
    interval: tuple[float | None, float | None]
    predicted: float | None
    group: Group


_Key = tuple[tuple[str, Value | int], ...]


def sweeps(study: Study) -> Section | None:
    """Return rates and times over each varied number; a line joins cases equal in all other factors."""
    every = {name for group in study.groups for name in group.factors} - {"seed", "gpu", *DEFAULTS}
    varied = sorted(name for name in every if _varies(study, name))
    varied = [*(name for name in FIRST if name in varied), *(name for name in varied if name not in FIRST)]
    metrics = _metrics(study)
    figures = [
        figure
        for number, name in enumerate(varied)
        for drawn in metrics
        if (figure := _figure(study, f"sweep-{number}-{drawn.metric}", name, drawn))
    ]
    return Section("sweeps", "Sweeps", (), tuple(figures)) if figures else None


def _metrics(study: Study) -> list[_Drawn]:
    """Return the metrics that have a plot: rates first, then shares, then times."""
    found = {
        name: _Drawn(name, "%" if metric.unit == "1" else metric.unit, metric.plot)
        for record in study.records
        for name, metric in study.derive(record).items()
        if metric.plot
    }
    return sorted(found.values(), key=lambda drawn: ("%", "s").index(drawn.unit) if drawn.unit in ("%", "s") else -1)


def _varies(study: Study, name: str) -> bool:
    values = {group.factors.get(name) for group in study.groups}
    return len(values) > 1 and all(_number(value) is not None for value in values)


def _number(value: Value) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _figure(study: Study, key: str, name: str, metric: _Drawn) -> Figure | None:
    lines = _lines(study, name, metric)
    predicted = any(dot.predicted is not None for of in lines.values() for dot in of)
    if not lines or (metric.plot.only_predicted and not predicted):
        return None
    across = name in study.apart
    cases = names.names([dict(rest[1:]) for rest in lines], () if across else study.apart, [name for _ in lines]).each
    sides = ["" if across else of[0].group.side for of in lines.values()]
    labels = [" ".join(filter(None, pair)) or metric.plot.title for pair in zip(cases, sides, strict=True)]
    pairs = list(zip(labels, lines.values(), strict=True))
    shown, left = drawn(pairs, MOST_CURVES, "lines")
    several = len(study.sides) > 1 and not across
    marks = [
        Points.of(
            label,
            of[0].group.series if several else index,
            [(dot.x, dot.y, *dot.interval, f"{label}, {name}={dot.x:g}: {_said(dot, metric)}") for dot in of],
            symbol=index,
        )
        for index, (label, of) in enumerate(shown)
    ]
    marks += _predictions(shown, {label: mark.series for (label, _), mark in zip(shown, marks, strict=True)})
    is_log, limit = metric.unit in ("s", "B/s"), (0.0, 1.0) if metric.unit == "%" else (0.0,)
    dots = [(label, dot) for label, of in pairs for dot in of]
    table = table_of(
        dots,
        (Column("line"), lambda row: row[0]),
        (number(name), lambda row: row[1].x),
        (number(metric.metric, metric.unit), lambda row: row[1].y),
        (number("interval_from", metric.unit), lambda row: row[1].interval[0]),
        (number("interval_to", metric.unit), lambda row: row[1].interval[1]),
        *[(number(metric.plot.predicted, metric.unit), lambda row: row[1].predicted)] * predicted,
        (number("trials"), lambda row: len(row[1].group.ok)),
    )
    caption = f"Each dot is {MEDIAN}. A line joins configurations that differ only in this parameter."
    if predicted:
        caption += " Lines without dots are predicted from the work by formula and the measured ceilings of the device."
    return Figure(
        key,
        f"{metric.plot.title} over {name}",
        caption,
        Axis(name, log=True),
        tuple(marks),
        table,
        y=Axis(metric.plot.title, metric.unit if metric.unit in ("s", "%") else "", log=is_log, limit=limit),
        left_out=left,
    )


def _said(dot: _Dot, metric: _Drawn) -> str:
    """Return the value of a dot, and how far it is from the prediction."""
    if metric.unit == "%":
        return f"{dot.y:.1%} {metric.plot.title}"
    if metric.unit != "s":
        return f"{si(dot.y, metric.unit)} {metric.plot.title}"
    times = f", {dot.y / dot.predicted:.3g} times the predicted {si(dot.predicted, 's')}" if dot.predicted else ""
    return f"{si(dot.y, 's')}{times}"


def _lines(study: Study, name: str, drawn: _Drawn) -> Mapping[_Key, list[_Dot]]:
    """Return the lines of two dots or more, each with the side and the factors that its dots share.

    If the sides differ in the parameter itself, a line joins them.
    """
    whole = _joined(study, name, drawn, {name})
    if name not in LENGTHS:
        return whole
    of_room = _joined(study, name, drawn, {name, "seq_len"})
    return of_room if all(len({dot.x for dot in of}) == len(of) for of in of_room.values()) else whole


def _joined(study: Study, name: str, drawn: _Drawn, free: set[str]) -> Mapping[_Key, list[_Dot]]:
    found: dict[_Key, list[_Dot]] = {}
    for group in study.groups:
        x, y = _number(group.factors.get(name)), study.median(group, drawn.metric)
        if x is not None and y is not None:
            side = ("", 0) if name in study.apart else (group.side, group.series)
            rest = (side, *((key, of) for key, of in group.factors.items() if key not in free))
            interval = median_interval(study.values(group, drawn.metric)) or (None, None)
            predicted = study.median(group, drawn.plot.predicted) if drawn.plot.predicted else None
            found.setdefault(rest, []).append(_Dot(x, y, interval, predicted, group))
    return {rest: sorted(of, key=lambda dot: dot.x) for rest, of in found.items() if len(of) > 1}


def _predictions(pairs: Iterable[tuple[str, Sequence[_Dot]]], series: Mapping[str, int]) -> list[Points]:
    """Return the predicted lines; lines of the same work share one, called after what their names have in common."""
    found: dict[tuple[tuple[float, float], ...], list[str]] = {}
    for label, of in pairs:
        if line := tuple((dot.x, dot.predicted) for dot in of if dot.predicted is not None):
            found.setdefault(line, []).append(label)
    return [
        Points(
            f"{names.common_words(labels)} predicted".strip(),
            series[labels[0]] if len(labels) == 1 else PREDICTED,
            tuple(x for x, _ in line),
            tuple(y for _, y in line),
            look="line",
            symbol=2,
        )
        for line, labels in found.items()
    ]
