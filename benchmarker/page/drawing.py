"""The figures of the page as drawings of matplotlib: small, and with markers and hatches that differ without colour."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Sequence
from importlib.resources import files
from itertools import groupby
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib import ticker
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure as Canvas
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.textpath import text_to_path

from benchmarker.formatting import clean, shortened
from benchmarker.page.axes import is_log_across, is_log_up
from benchmarker.page.page_model import Axis, Bars, Boxes, Figure, Heat, Points, Ridge
from benchmarker.page.trace_marks import Icicle, Node, Timeline

TEXTS = ("font.size", "axes.labelsize", "legend.fontsize", "xtick.labelsize", "ytick.labelsize")
"""The settings of matplotlib that are sizes of text."""
SETTINGS: dict[str, Any] = {
    **dict.fromkeys(TEXTS, 8),
    "font.family": "DejaVu Sans",
    "text.parse_math": False,
    "axes.axisbelow": True,
    "axes.linewidth": 0.6,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "hatch.linewidth": 0.5,
    "legend.frameon": False,
    "lines.linewidth": 1.2,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "pdf.fonttype": 42,
    "savefig.dpi": 300,
    "savefig.transparent": True,
    "svg.hashsalt": "benchmarker",
}
"""The font comes with matplotlib, has 8 pt, and is embedded in PDF."""
POINT = 1 / 72
"""A point (pt) in inches."""
GREY = "#8a8f98"
SYMBOLS = ("o", "s", "D", "^", "P", "X", "*", "v")
DASHES = ("-", "--", ":", "-.", (0, (6, 2)), (0, (6, 2, 1, 2)), (0, (3, 1)), (0, (1, 2)))
HATCHES = ("", "////", "\\\\\\\\", "xxxx", "----", "||||", "++++", "//", "xx")
FEW = 1000
"""Ratio of the ends of a logarithmic axis up to which it has ticks within decades."""
MOST_TICKS = 6
LEFT = 0.38
"""Share of the width that names of rows may take on the left; longer ones stand above their rows."""
ROWS = ((0.21, 0.36), (0.4, 0.6))
"""Heights of rows in inches: without curves and with them, beside their names and below them."""
BOX, THIN, LEGIBLE = 0.17, 0.25, 24
"""Height of the boxes of a profile in inches; the widths in pt from which they are drawn, and have text."""
LOW_ROW, TALLEST = 0.13, 8.5
"""Heights of the rows of a heat map, and of the largest heat map, in inches."""
INTERVAL: dict[str, Any] = {"fmt": "none", "capsize": 2, "elinewidth": 0.9}
PLACES = ((5, 0, "left", "center"), (-5, 0, "right", "center"), (0, 5, "center", "bottom"), (0, -5, "center", "top"))
"""Where a label may stand beside its point: offsets in pt, and how it is aligned."""


def drawing(figure: Figure, width: float, ink: str) -> Canvas:
    """Return the drawing of a figure, `width` inches wide, with text and axes in the colour `ink`."""
    canvas = Canvas(figsize=(width, width), layout="constrained")
    axes = canvas.add_subplot()
    axes.use_sticky_edges = False
    if isinstance(mark := figure.marks[0], Heat):
        _heat(canvas, axes, figure, mark)
        return canvas
    if isinstance(mark, Icicle | Timeline):
        room = width / POINT
        height, named = _icicle(axes, mark, room) if isinstance(mark, Icicle) else _timeline(axes, mark, room)
        _scaled(axes, "x", figure.x, [])
        axes.yaxis.set_visible(False)
        axes.spines["left"].set_visible(False)
        canvas.set_size_inches(width, height + 0.45 + 0.16 * _legend(canvas, named))
        return canvas
    height = _rows(axes, figure, width / POINT) if figure.rows else 0.66 * width
    if is_log_across(figure):
        axes.set_xscale("log")
    if is_log_up(figure):
        axes.set_yscale("log")
    named = {}
    for band in figure.bands:
        shade = axes.axvspan(band.start, band.end, alpha=0.25, color=GREY, linewidth=0)
        if band.look == "doubt":
            shade.set(facecolor="none", edgecolor=GREY, hatch="////", alpha=0.8)
        named |= {band.name: shade} if band.name else {}
    for at in figure.lines:
        axes.axvline(at, color=GREY, linestyle=":", linewidth=1)
    stacked = [0.0] * len(figure.rows)
    for mark in figure.marks:
        handle = _DRAWN[type(mark)](axes, mark, figure, ink, stacked)
        if handle is not None:
            named.setdefault(mark.name, handle)
    _scaled(axes, "x", figure.x, _whole(figure))
    if figure.y:
        _scaled(axes, "y", figure.y, [])
    title = _wrapped(axes.get_xlabel(), width / POINT - 20)
    axes.set_xlabel(title)
    canvas.set_size_inches(width, height + 0.45 + 0.16 * (_legend(canvas, named) + title.count("\n")))
    if figure.y:
        _label(canvas, axes, figure, ink)
    return canvas


def palette() -> tuple[list[str], ...]:
    """Return the colours of sides, kinds, idle causes and copies that the page has on light ground."""
    style = (files(__package__) / "page.css").read_text("utf-8").partition("}")[0]
    return tuple(re.findall(rf"--{name}: (#\w{{6}})", style) for name in (r"s\d", r"k\d", r"i\d", "copy"))


_SIDES, _KINDS, _IDLE, _COPY = palette()


def _colour(series: int) -> str:
    return _SIDES[series % len(_SIDES)]


def _plain(text: str) -> str:
    return clean(" ".join(text.split()))


def _width(text: str) -> float:
    """Return the width of a text in pt."""
    font = FontProperties(size=mpl.rcParams["font.size"])
    return float(text_to_path.get_text_width_height_descent(text, font, ismath=False)[0])


def _fitting(text: str, room: float) -> str:
    """Return a text that is at most so many pt wide, shortened in the middle."""
    made, most = text, len(text)
    while most > 3 and (width := _width(made)) > room:
        most = max(3, min(most - 1, int(most * room / width)))
        made = shortened(text, most)
    return made


def _wrapped(text: str, room: float) -> str:
    """Return a text on lines of about so many pt."""
    return textwrap.fill(text, max(8, int(len(text) * room / max(room, _width(text)))))


def _rows(axes: Any, figure: Figure, width: float) -> float:
    """Name the rows, on the left or above them; return the height of all in inches."""
    names = [_plain(name) for name in figure.rows]
    is_above, has_curves = max(map(_width, names)) > LEFT * width, any(isinstance(mark, Ridge) for mark in figure.marks)
    axes.set_yticks(range(len(names)), [""] * len(names) if is_above else names)
    if is_above:
        for at, name in enumerate(names):
            looks = {"transform": axes.get_yaxis_transform(), "va": "bottom", "in_layout": False}
            axes.text(0, at - (0.47 if has_curves else 0.34), _fitting(name, width - 12), **looks)
    axes.set_ylim(len(names) - 0.5, -0.8 if is_above else -0.5)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    return ROWS[has_curves][is_above] * (len(names) + 0.3 * is_above)


def _whole(figure: Figure) -> list[float]:
    """Return the whole numbers at which the points are, such as numbers of devices, if these are few."""
    values = {x for mark in figure.marks if isinstance(mark, Points) for x in mark.x}
    return sorted(values) if len(values) <= MOST_TICKS and all(float(x).is_integer() for x in values) else []


def _scaled(axes: Any, which: str, axis: Axis, ticks: Sequence[float]) -> None:
    """Give an axis its ends, its title, and ticks: these, if there are any and it is logarithmic."""
    of = getattr(axes, f"{which}axis")
    if len(axis.limit) > 1:
        getattr(axes, f"set_{which}lim")(*axis.limit)
    elif axis.limit:
        low, high = min(*axis.limit, *of.get_data_interval()), max(*axis.limit, *of.get_data_interval())
        getattr(axes, f"set_{which}lim")(low, high + 0.05 * (high - low))
    least, most = of.get_view_interval()
    if of.get_scale() == "log":
        of.set_major_locator(ticker.FixedLocator(ticks) if ticks else _log_ticks(most / least))
        of.set_minor_locator(ticker.NullLocator())
    else:
        of.set_major_locator(ticker.MaxNLocator(MOST_TICKS - 1, steps=[1, 2, 5, 10]))
    if axis.unit == "%":
        of.set_major_formatter(ticker.PercentFormatter(1, decimals=0))
    elif axis.unit == "s" or most >= 1000:
        of.set_major_formatter(ticker.EngFormatter("s") if axis.unit == "s" else ticker.EngFormatter(sep=""))
    else:
        of.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    getattr(axes, f"set_{which}label")(
        _plain(axis.title if axis.unit in ("", "%", "s") else f"{axis.title}, {axis.unit}")
    )
    axes.grid(axis=which, color=GREY, alpha=0.25, linewidth=0.5)


def _log_ticks(ratio: float) -> ticker.Locator:
    """Return ticks within decades as long as there are few, else at powers of ten."""
    finer = [each for each in ((1, 2, 5), (1, 3)) if ratio <= FEW and len(each) * math.log10(ratio) <= MOST_TICKS]
    return ticker.LogLocator(10, (*finer, (1,))[0], numticks=MOST_TICKS + 3)


def _bars(axes: Any, mark: Bars, figure: Figure, ink: str, stacked: list[float]) -> Any:
    colour = _KINDS[mark.series % len(_KINDS)] if mark.stacked else _colour(mark.series)
    starts = [stacked[at] if mark.stacked else 0.0 for at in mark.at]
    looks: dict[str, Any] = {
        "facecolor": colour,
        "edgecolor": "white",
        "linewidth": 0.4,
        "hatch": HATCHES[mark.series % len(HATCHES)],
    }
    axes.barh(mark.at, mark.values, 0.6, starts, **looks)
    for at, value in zip(mark.at, mark.values, strict=True):
        stacked[at] += value
    _intervals(axes, mark, mark.values, mark.at, ink, along_x=True)
    return Patch(**looks)


def _boxes(axes: Any, mark: Boxes, figure: Figure, ink: str, stacked: list[float]) -> Any:
    colour = _colour(mark.series)
    looks: dict[str, Any] = {
        "facecolor": f"{colour}50",
        "edgecolor": colour,
        "hatch": HATCHES[mark.series % len(HATCHES)],
    }
    for at, (p5, q1, median, q3, p95) in zip(mark.at, mark.five, strict=True):
        axes.plot([p5, q1, math.nan, q3, p95], [at] * 5, color=colour, linewidth=1)
        axes.barh(at, q3 - q1, 0.55, q1, linewidth=0.8, **looks)
        axes.plot([median] * 2, [at - 0.275, at + 0.275], color=ink, linewidth=1.4, solid_capstyle="butt")
    return Patch(**looks)


def _points(axes: Any, mark: Points, figure: Figure, ink: str, stacked: list[float]) -> Any:
    colour = ink if mark.look == "small" else _colour(mark.series)
    if figure.rows and mark.look.startswith("small"):  # the round ends of very short lines: one path for all dots
        x = [each for value in mark.x for each in (value, value, math.nan)]
        y = [each for value in mark.y for each in (value - 0.005, value + 0.005, math.nan)]
        axes.plot(x, y, color=colour, linewidth=2.4, solid_capstyle="round", alpha=0.7)
        handle = Line2D([], [], color=colour, marker="o", markersize=2.4, markeredgewidth=0, linestyle="none")
    else:
        symbol = mark.series if mark.symbol is None else mark.symbol
        is_hollow = mark.look in ("hollow", "small")
        _intervals(axes, mark, mark.x, mark.y, colour, along_x=not figure.y)
        (handle,) = axes.plot(
            mark.x,
            mark.y,
            color=colour,
            linestyle=DASHES[symbol % len(DASHES)] if mark.look in ("line", "line and dots") else "none",
            marker="none" if mark.look == "line" else SYMBOLS[symbol % len(SYMBOLS)],
            markersize=3 if mark.look.startswith("small") else 5,
            markerfacecolor="none" if is_hollow else colour,
            markeredgecolor=colour if is_hollow else "white",
            markeredgewidth=0.9 if is_hollow else 0.4,
        )
    return handle if mark.listed else None


def _ridge(axes: Any, mark: Ridge, figure: Figure, ink: str, stacked: list[float]) -> None:
    colour = _colour(mark.series)
    tops = [mark.at - 0.45 * height for height in mark.heights]
    axes.fill_between(mark.x, tops, mark.at, facecolor=f"{colour}38", edgecolor=colour, linewidth=0.6)


_DRAWN: dict[type, Callable[..., Any]] = {Bars: _bars, Boxes: _boxes, Points: _points, Ridge: _ridge}


def _icicle(axes: Any, mark: Icicle, room: float) -> tuple[float, dict[str, Any]]:
    """Draw parts below those that they belong to, the sides one below the other; return the height, and the legend."""
    longest = max(ns / steps for ns, steps in zip(mark.nodes[0].time_ns, mark.steps, strict=True)) / 1e9
    two, row = len(mark.sides) > 1, 0
    named: dict[str, Any] = {}
    for side, name in enumerate(mark.sides):
        if two:
            axes.text(0, row + 0.5, _fitting(_plain(name), room - 10), va="center")
            row += 1
            named[f"longer in {name}"] = Patch(facecolor=_colour(mark.series[side]))
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
        return _KINDS[mark.colours[node.category]] if node.category >= 0 else _paler(GREY, 0.15 + 0.04 * node.depth)
    one, two = (ns / steps for ns, steps in zip(node.time_ns, mark.steps, strict=True))
    change = (two - one) / max(one, two, 1)
    return _paler(_colour(mark.series[change > 0]), 0.15 + 0.8 * abs(change))


def _timeline(axes: Any, mark: Timeline, room: float) -> tuple[float, dict[str, Any]]:
    """Draw lanes below each other, each below its name; return the height, and the legend."""
    tops, row = [], 0
    for lane in mark.lanes:
        axes.text(0, row + 0.5, _fitting(_plain(lane.name), room - 10), va="center")
        tops.append(row + 1)
        row += 1 + lane.levels
    named: dict[str, Any] = {}
    for (lane, level, begin, span), parts in groupby(mark.boxes, lambda box: box[:4]):
        boxes, low = list(parts), 0.0
        whole = sum(box.time_ns for box in boxes)
        for box in boxes:
            group = mark.groups[box.group] if box.group >= 0 else None
            of = {"work": _KINDS, "idle": _IDLE, "copy": _COPY}.get(group.family) if group else None
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
        axes.text(begin, row + 0.5, f" {_fitting(_plain(text), wide - 5)}", va="center", color=ink)


def _paler(colour: Any, share: float) -> tuple[float, float, float]:
    """Return this share of a colour on white."""
    red, green, blue = (1 - share * (1 - part) for part in to_rgb(colour))
    return red, green, blue


def _intervals(
    axes: Any, mark: Bars | Points, x: Sequence[float], y: Sequence[float], colour: str, *, along_x: bool
) -> None:
    """Draw the intervals of a mark; an end that is not known is at its value."""
    found = [
        (at, other, [0 if low is None else value - low], [0 if high is None else high - value])
        for at, other, value, low, high in zip(x, y, x if along_x else y, mark.low, mark.high, strict=False)
        if low is not None or high is not None
    ]
    for at, other, *sizes in found:
        axes.errorbar(at, other, **{"xerr" if along_x else "yerr": np.maximum(sizes, 0)}, **INTERVAL, ecolor=colour)


def _legend(canvas: Canvas, named: dict[str, Any]) -> int:
    """Add a legend below if there are several names; return its number of lines."""
    if len(named) < 2:
        return 0
    width = canvas.get_figwidth() / POINT
    texts = [_wrapped(_plain(name), width - 40) for name in named]
    widest = max(_width(line) for text in texts for line in text.split("\n")) + 32
    columns = max(1, min(len(named), int(width / widest)))
    looks = {"borderpad": 0.2, "columnspacing": 1.0, "labelspacing": 0.3, "handlelength": 1.8}
    canvas.legend(list(named.values()), texts, loc="outside lower left", ncols=columns, **looks)
    return -(-sum(text.count("\n") + 1 for text in texts) // columns)


def _label(canvas: Canvas, axes: Any, figure: Figure, ink: str) -> None:
    """Write the labels of points beside them, on the side where least is in the way."""
    points = [mark for mark in figure.marks if isinstance(mark, Points)]
    if not any(mark.labels for mark in points):
        return
    canvas.draw_without_rendering()
    room, taken = 0.6 * axes.get_window_extent().width / canvas.dpi / POINT, list[Any]()
    dots = axes.transData.transform([pair for mark in points for pair in zip(mark.x, mark.y, strict=True)])
    for text, *at in [each for mark in points for each in zip(mark.labels, mark.x, mark.y, strict=False) if each[0]]:
        notes = [
            axes.annotate(
                _fitting(_plain(text), room), at, (dx, dy), textcoords="offset points", ha=ha, va=va, color=ink
            )
            for dx, dy, ha, va in PLACES
        ]
        boxes = [note.get_window_extent() for note in notes]
        costs = [
            10 * (box.x0 < axes.bbox.x0 or box.x1 > canvas.bbox.x1 or box.y0 < axes.bbox.y0 or box.y1 > canvas.bbox.y1)
            + 3 * box.count_overlaps(taken)
            + box.count_contains(dots)
            for box in boxes
        ]
        best = costs.index(min(costs))
        taken.append(boxes[best])
        for note in notes[:best] + notes[best + 1 :]:
            note.remove()


def _heat(canvas: Canvas, axes: Any, figure: Figure, heat: Heat) -> None:
    """Draw a heat map: as a picture, so that some thousands of cells are small."""
    width = canvas.get_figwidth()
    cells = np.array([[math.nan if value is None else value for value in row] for row in heat.values])
    colours = LinearSegmentedColormap.from_list("", [_SIDES[0], "#f4f2ee", _SIDES[1]])
    looks = {"cmap": colours, "vmin": -heat.limit, "vmax": heat.limit}
    image = axes.imshow(cells, aspect="auto", interpolation="nearest", **looks)
    height = min(TALLEST, max(1.0, LOW_ROW * len(figure.rows)))
    rows = range(0, len(figure.rows), -(-len(figure.rows) // int(height / LOW_ROW)))
    columns = range(0, len(heat.columns), -(-len(heat.columns) // int(width / 0.35)))
    names = [_fitting(_plain(heat.columns[at]), 90) for at in columns]
    axes.set_yticks(rows, [_fitting(_plain(figure.rows[at]), 0.5 * width / POINT) for at in rows])
    axes.set_xticks(columns, names, rotation=90)
    axes.tick_params(length=0, labeltop=True, labelbottom=False)
    axes.spines[:].set_visible(False)
    percent = ticker.PercentFormatter(1, decimals=0)
    canvas.colorbar(image, ax=axes, location="bottom", fraction=0.1, aspect=30, format=percent).outline.set_visible(
        False
    )
    canvas.set_size_inches(width, height + max(map(_width, names)) * POINT + 0.5)
