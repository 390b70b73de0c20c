"""Rooflines: steps, scopes and kernels under the measured roof of their device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from benchmarker.formatting import within
from benchmarker.page.page_model import Axis, Figure, Points, Section, table_of
from benchmarker.page.study import MEDIAN, Group, Study
from benchmarker.roofline.model import Level, Roofline, RooflinePoint
from benchmarker.roofline.roofs import Roof
from benchmarker.tables.table import Column, number

MOST_CONFIGURATIONS = 8
MOST_POINTS = 40
"""Largest number of points drawn for a configuration, the longest of each level first."""
MOST_SENTENCES = 4
LEVELS: tuple[Level, ...] = ("step", "scope", "kernel", "phase")
"""The levels, in the order of their symbols."""
WHOLE = ("step", "phase")
"""Levels whose points are large."""
ROOF = 7


class Modelled(NamedTuple):
    """A roofline with the name of its configuration, its phase of text generation, and the number of its side.

    The phase is empty if there is none, and the side is None if configurations have colours of their own.
    """

    label: str
    roofline: Roofline
    phase: str = ""
    side: int | None = None


def roofs(study: Study) -> Section | None:
    """Return the rooflines, or why there are none."""
    rooflines, lacking = study.rooflines
    without = [f"No roofline: {reason}." for reason in lacking]
    several = len(study.sides) > 1
    found = [
        Modelled(group.label, each, _phase_of(group), group.series if several else None) for group, each in rooflines
    ]
    figure = roofs_figure(found)
    if figure is None:
        return Section("roofline", "Roofline", tuple(without[:MOST_SENTENCES])) if without else None
    lead = [_sentence(each.label, each.roofline.points[0]) for each in found[:MOST_SENTENCES] if each.roofline.points]
    return Section("roofline", "Roofline", (*lead, *without[:MOST_SENTENCES]), (figure,))


def _sentence(name: str, step: RooflinePoint) -> str:
    return f"A step of {name} is {step.bound}-bound and reaches {step.share:.0%} of its roof."


def _drawable(found: Roofline) -> list[RooflinePoint]:
    """Return the points with FLOPs, which logarithmic axes can show."""
    return [each for each in found.points if each.flops]


def roofs_figure(found: Sequence[Modelled]) -> Figure | None:
    """Return the points of rooflines under their roofs; None if no work has FLOPs."""
    shown = _mixed([each for each in found if _drawable(each.roofline)])[:MOST_CONFIGURATIONS]
    points = [(index, each) for index, of in enumerate(shown) for each in _drawable(of.roofline)[:MOST_POINTS]]
    if not points:
        return None
    xs = [each.intensity for _, each in points]
    least, most = min(xs) / 4, max(xs) * 4
    marks = [_roof(roof, least, most) for roof in dict.fromkeys(of.roofline.roof for of in shown)]
    for at, modelled in enumerate(shown):
        name = modelled.label
        for symbol, level in enumerate(LEVELS):
            these = [each for index, each in points if index == at and each.level == level]
            if not these:
                continue
            phases = tuple(_phase(modelled, each) for each in these)
            marks.append(
                Points(
                    name,
                    at if modelled.side is None else modelled.side,
                    tuple(each.intensity for each in these),
                    tuple(each.achieved for each in these),
                    tuple(
                        f"{name}, {level} {each.name}: "
                        f"{within(each.achieved, (each.achieved_low, each.achieved_high), 'FLOP/s')}, "
                        f"{each.share:.0%} of the roof, {each.bound}-bound"
                        for each in these
                    ),
                    low=tuple(each.achieved_low for each in these),
                    high=tuple(each.achieved_high for each in these),
                    look="dots" if level in WHOLE else "small dots",
                    symbol=symbol,
                    labels=phases if any(phases) else (),
                    listed=level == "step",
                )
            )
    rows = [(of.label, each) for of in found for each in of.roofline.points]
    table = table_of(
        rows,
        (Column("configuration"), lambda row: row[0]),
        (Column("level"), lambda row: row[1].level),
        (Column("name"), lambda row: row[1].name),
        (number("flop_per_byte"), lambda row: row[1].intensity),
        (number("achieved_flop_per_s", "FLOP/s"), lambda row: row[1].achieved),
        (number("achieved_from", "FLOP/s"), lambda row: row[1].achieved_low),
        (number("achieved_to", "FLOP/s"), lambda row: row[1].achieved_high),
        (number("attainable_flop_per_s", "FLOP/s"), lambda row: row[1].attainable),
        (Column("bound_by"), lambda row: row[1].bound),
        (number("share_of_roof", "%"), lambda row: row[1].share),
        (number("time_s", "s"), lambda row: row[1].time_s),
        (number("trials"), lambda row: row[1].trials),
    )
    left = f"{len(points)} of {len(rows)} points are drawn; the data table has all." if len(points) < len(rows) else ""
    return Figure(
        "roofs",
        "Achieved FLOP/s over arithmetic intensity",
        f"Each mark is {MEDIAN}; the intensity is computed. Circles are steps, triangles are the phases of a step that "
        "generates text, squares are scopes, diamonds are kernels. The lines are the roofs measured on these devices: "
        "bandwidth times intensity on the left, the peak of matrix products on the right. Times of scopes and kernels "
        "were measured under the profiler; in those of phases, each token was waited for. A point above a roof means "
        "that data stayed in a cache, which the model ignores, or that the machine was slower when its ceilings were "
        "measured.",
        Axis("arithmetic intensity, FLOP/byte", log=True),
        tuple(marks),
        table,
        y=Axis("FLOP/s", log="always"),
        left_out=left,
    )


def _phase_of(group: Group) -> str:
    phase = str(group.factors.get("phase", "none"))
    return "" if phase == "none" else phase


def _phase(of: Modelled, point: RooflinePoint) -> str:
    """Return the phase of text generation that a point is; empty if it is none."""
    return point.name if point.level == "phase" else of.phase * (point.level == "step")


def _mixed(found: Sequence[Modelled]) -> list[Modelled]:
    """Return the rooflines with those of each phase of text generation in turn, so that the first have all phases."""
    seen: Counter[str] = Counter()
    ranks = []
    for each in found:
        ranks.append(seen[each.phase])
        seen[each.phase] += 1
    return [each for _, each in sorted(zip(ranks, found, strict=True), key=lambda pair: pair[0])]


def _roof(roof: Roof, least: float, most: float) -> Points:
    xs = [least, *([roof.ridge] if least < roof.ridge < most else []), most]
    return Points(f"roof: {roof.name}", ROOF, tuple(xs), tuple(map(roof.attainable, xs)), look="line")
