"""Rooflines: steps, scopes and kernels under the measured roof of their device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarker.formatting import si
from benchmarker.report.page_model import Axis, Cell, Column, Figure, Points, Section, Table

if TYPE_CHECKING:
    from benchmarker.report.study import Study
    from benchmarker.roofline.model import Level, Point, Roof, Roofline

MOST_CONFIGURATIONS = 8
MOST_POINTS = 40
"""Largest number of points drawn for a configuration, the longest of each level first."""
MOST_SENTENCES = 4
LEVELS: tuple[Level, ...] = ("step", "scope", "kernel")
ROOF = 7


def roofs(study: Study) -> Section | None:
    """Return the roofline of each result, or why there is none."""
    found: list[tuple[str, Roofline]] = []
    lacking: dict[str, None] = {}
    for result, several, reasons in study.rooflines:
        of = f"{result} " if len(study.results) > 1 else ""
        found += [(f"{of}{each.configuration}", each) for each in several]
        lacking |= dict.fromkeys(reasons)
    without = [f"No roofline: {reason}." for reason in lacking]
    figure = _figure(study, found) if any(_drawable(each) for _, each in found) else None
    if figure is None:
        return Section("roofline", "Roofline", tuple(without[:MOST_SENTENCES])) if without else None
    lead = [_sentence(name, each.points[0]) for name, each in found[:MOST_SENTENCES] if each.points]
    return Section("roofline", "Roofline", (*lead, *without[:MOST_SENTENCES]), (figure,))


def _sentence(name: str, step: Point) -> str:
    return f"A step of {name} is {step.bound}-bound and reaches {step.share:.0%} of its roof."


def _drawable(found: Roofline) -> list[Point]:
    """Return the points with FLOPs, which logarithmic axes can show."""
    return [each for each in found.points if each.flops]


def _figure(study: Study, found: list[tuple[str, Roofline]]) -> Figure:
    amount = si
    shown = found[:MOST_CONFIGURATIONS]
    points = [(name, index, each) for index, (name, of) in enumerate(shown) for each in _drawable(of)[:MOST_POINTS]]
    xs = [each.intensity for _, _, each in points]
    least, most = min(xs) / 4, max(xs) * 4
    marks = [_roof(roof, least, most) for roof in dict.fromkeys(of.roof for _, of in shown)]
    for series, (name, _) in enumerate(shown):
        for symbol, level in enumerate(LEVELS):
            these = [each for _, index, each in points if index == series and each.level == level]
            if these:
                marks.append(
                    Points(
                        name,
                        series,
                        tuple(each.intensity for each in these),
                        tuple(each.achieved for each in these),
                        tuple(
                            f"{name}, {level} {each.name}: {amount(each.achieved, 'FLOP/s')}, "
                            f"{each.share:.0%} of the roof, {each.bound}-bound"
                            for each in these
                        ),
                        look="dots" if level == "step" else "small dots",
                        symbol=symbol,
                        listed=level == "step",
                    )
                )
    rows: list[tuple[Cell, ...]] = [
        (
            name,
            each.level,
            each.name,
            each.intensity,
            each.achieved,
            each.attainable,
            each.bound,
            each.share,
            each.time_s,
        )
        for name, of in found
        for each in of.points
    ]
    columns = (
        Column("configuration"),
        Column("level"),
        Column("name"),
        Column("flop_per_byte", numeric=True),
        Column("achieved_flop_per_s", "FLOP/s", numeric=True),
        Column("attainable_flop_per_s", "FLOP/s", numeric=True),
        Column("bound_by"),
        Column("share_of_roof", "%", numeric=True),
        Column("time_s", "s", numeric=True),
    )
    left = f"{len(points)} of {len(rows)} points are drawn; the data table has all." if len(points) < len(rows) else ""
    return Figure(
        "roofs",
        "Achieved FLOP/s over arithmetic intensity",
        "Circles are steps, squares are scopes, diamonds are kernels. The lines are the roofs measured on these "
        "devices: bandwidth times intensity on the left, the peak of matrix products on the right. Times of scopes and "
        "kernels were measured under the profiler. A point above a roof means that data stayed in a cache, which the "
        "model ignores, or that the machine was slower when its ceilings were measured.",
        Axis("arithmetic intensity, FLOP/byte", log=True),
        tuple(marks),
        Table(columns, tuple(rows)),
        y=Axis("FLOP/s", log="always"),
        left_out=left,
    )


def _roof(roof: Roof, least: float, most: float) -> Points:
    xs = [least, *([roof.ridge] if least < roof.ridge < most else []), most]
    return Points(f"roof: {roof.name}", ROOF, tuple(xs), tuple(map(roof.attainable, xs)), look="line")
