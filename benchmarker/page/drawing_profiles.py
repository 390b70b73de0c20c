"""Icicles and time lines as drawings of matplotlib: boxes that are as wide as their time."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from matplotlib.colors import to_rgb
from matplotlib.patches import Patch, Rectangle

from benchmarker.page.drawing_style import COPY, GREY, IDLE, KINDS, colour_of, fitting
from benchmarker.page.page_model import readable
from benchmarker.page.trace_marks import Icicle, Node, Timeline

BOX, THIN, LEGIBLE = 0.17, 0.25, 24
"""Height of a box in inches; the widths in pt from which boxes are drawn, and have text."""


def draw_icicle(axes: Any, mark: Icicle, room: float) -> tuple[float, dict[str, Any]]:
    """Draw parts below those that they belong to, the sides one below the other; return the height, and the legend."""
    longest = max(ns / steps for ns, steps in zip(mark.nodes[0].time_ns, mark.steps, strict=True)) / 1e9
    two, row = len(mark.sides) > 1, 0
    named: dict[str, Any] = {}
    for side, name in enumerate(mark.sides):
        if two:
            axes.text(0, row + 0.5, fitting(readable(name), room - 10), va="center")
            row += 1
            named[f"longer in {name}"] = Patch(facecolor=colour_of(mark.series[side]))
        starts = [0.0] * (max(node.depth for node in mark.nodes) + 2)
        deepest = 0
        for node in mark.nodes:
            length, begin = node.time_ns[side] / mark.steps[side] / 1e9, starts[node.depth]
            starts[node.depth], starts[node.depth + 1] = begin + length, begin
            if length * room / longest < THIN:
                continue
            deepest = max(deepest, node.depth)
            colour = _part_colour(mark, node)
            if node.category >= 0 and not two:
                kind = mark.colours[node.category]
                names = [name for name, of in zip(mark.categories, mark.colours, strict=True) if of == kind]
                named[", ".join(names)] = Patch(facecolor=colour)
            text = mark.labels[node.label] if node.label >= 0 else "" if node.depth else "all work"
            _box(axes, begin, row + node.depth, length, 1.0, colour, text or "unknown", length * room / longest)
        row += deepest + 1
    axes.set_xlim(0, longest)
    axes.set_ylim(row, 0)
    return BOX * row, named


def _part_colour(mark: Icicle, node: Node) -> Any:
    """Return the colour of a part: that of its category, or of the side on which it takes longer."""
    if len(mark.sides) < 2:
        return KINDS[mark.colours[node.category]] if node.category >= 0 else _paler(GREY, 0.15 + 0.04 * node.depth)
    one, two = (ns / steps for ns, steps in zip(node.time_ns, mark.steps, strict=True))
    change = (two - one) / max(one, two, 1)
    return _paler(colour_of(mark.series[change > 0]), 0.15 + 0.8 * abs(change))


def draw_timeline(axes: Any, mark: Timeline, room: float) -> tuple[float, dict[str, Any]]:
    """Draw lanes below each other, each below its name; return the height, and the legend."""
    tops, row = [], 0
    for lane in mark.lanes:
        axes.text(0, row + 0.5, fitting(readable(lane.name), room - 10), va="center")
        tops.append(row + 1)
        row += 1 + lane.levels
    named: dict[str, Any] = {}
    for (lane, level, begin, span), parts in groupby(mark.boxes, lambda box: box[:4]):
        boxes, low = list(parts), 0.0
        whole = sum(box.time_ns for box in boxes)
        for box in boxes:
            group = mark.groups[box.group] if box.group >= 0 else None
            of = {"work": KINDS, "idle": IDLE, "copy": COPY}.get(group.family) if group else None
            colour = of[group.colour] if group and of else _paler(GREY, 0.35 + 0.15 * group.colour if group else 0.25)
            if group:
                name = f"idle: {group.name}" if group.family == "idle" else group.name
                named.setdefault(name, Patch(facecolor=colour))
            alone = box.rows == 1 and len(boxes) == 1
            text = mark.labels[box.label] if alone and box.label >= 0 else ""
            high = box.time_ns / whole if whole else 1 / len(boxes)
            place = begin / 1e9, tops[lane] + level + low, span / 1e9, high
            _box(axes, *place, colour if alone else _paler(colour, 0.5), text, span / mark.length_ns * room)
            low += high
    axes.set_xlim(0, mark.length_ns / 1e9)
    axes.set_ylim(row, 0)
    return BOX * row, named


def _box(axes: Any, begin: float, row: float, length: float, high: float, colour: Any, text: str, wide: float) -> None:
    """Draw a box, `wide` pt wide, with its text if that is readable in it."""
    looks = {"facecolor": colour, "edgecolor": "white", "linewidth": 0.3 if wide > 2 else 0}
    axes.add_patch(Rectangle((begin, row + 0.05), length, 0.9 * high, **looks))
    if wide > LEGIBLE and text:
        red, green, blue = to_rgb(colour)
        ink = "white" if 0.3 * red + 0.59 * green + 0.11 * blue < 0.5 else "black"
        axes.text(begin, row + 0.5, f" {fitting(readable(text), wide - 5)}", va="center", color=ink)


def _paler(colour: Any, share: float) -> tuple[float, float, float]:
    """Return this share of a colour on white."""
    red, green, blue = (1 - share * (1 - part) for part in to_rgb(colour))
    return red, green, blue
