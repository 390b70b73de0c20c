"""The figures of the page as drawings of matplotlib: small, and with markers and hatches that differ without colour."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib import ticker
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from benchmarker.page.drawing_profiles import draw_icicle, draw_timeline
from benchmarker.page.drawing_style import GREY, KINDS, POINT, SIDES, colour_of, fitting, width_of, wrapped
from benchmarker.page.page_model import (
    Axis,
    Bars,
    Boxes,
    Ends,
    Figure,
    Heat,
    Points,
    Ridge,
    axes_of,
    ends_of,
    legend_of,
    readable,
)
from benchmarker.page.trace_marks import Icicle, Timeline

SYMBOLS = ("o", "s", "D", "^", "P", "X", "*", "v")
DASHES = ("-", "--", ":", "-.", (0, (6, 2)), (0, (6, 2, 1, 2)), (0, (3, 1)), (0, (1, 2)))
HATCHES = ("", "////", "\\\\\\\\", "xxxx", "----", "||||", "++++", "//", "xx")
FEW = 1000
"""Ratio of the ends of a logarithmic axis up to which it has ticks within decades."""
MOST_TICKS = 6
LEFT = 0.38
"""Share of the width that names of rows may take on the left; longer ones stand above their rows."""
FAR, BESIDE = 0.7, 0.3
"""Share of the width from which the ends of lines may have their names beside them, and that these may take."""
ROWS = ((0.21, 0.36), (0.4, 0.6))
"""Heights of rows in inches: without curves and with them, beside their names and below them."""
LOW_ROW, TALLEST = 0.13, 8.5
"""Heights of the rows of a heat map, and of the largest heat map, in inches."""
INTERVAL: dict[str, Any] = {"fmt": "none", "capsize": 2, "elinewidth": 0.9, "zorder": 1.9}
PLACES = (
    *((5, 0, "left", "center"), (-5, 0, "right", "center"), (0, 5, "center", "bottom"), (0, -5, "center", "top")),
    *((4, 4, "left", "bottom"), (4, -4, "left", "top"), (-4, 4, "right", "bottom"), (-4, -4, "right", "top")),
)
"""Where a label may stand: offsets in pt, and how it is aligned, beside the intervals of its point and between them."""


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
        height, named = draw_icicle(axes, mark, room) if isinstance(mark, Icicle) else draw_timeline(axes, mark, room)
        _scaled(axes, "x", figure.x, [])
        axes.yaxis.set_visible(False)
        axes.spines["left"].set_visible(False)
        canvas.set_size_inches(width, height + 0.45 + 0.16 * _legend(canvas, named))
        return canvas
    height = _rows(axes, figure, width / POINT) if figure.rows else 0.66 * width
    across, up = axes_of(figure)
    if across.log:
        axes.set_xscale("log")
    if up and up.log:
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
    handles = [_DRAWN[type(mark)](axes, mark, figure, ink, stacked) for mark in figure.marks]
    _scaled(axes, "x", across, _whole(figure))
    if up:
        _scaled(axes, "y", up, [])
    entries = legend_of(figure)
    marks = {each.name: figure.marks[each.mark] for each in entries if each.runs}
    lines = {name: mark for name, mark in marks.items() if isinstance(mark, Points)}
    beside = lines if _at_ends(axes, lines, width, height, ink) else {}
    named |= {each.name: handles[each.mark] for each in entries if each.name not in beside}
    title = wrapped(axes.get_xlabel(), width / POINT - 20)
    axes.set_xlabel(title)
    below = 0.45 + 0.16 * title.count("\n")
    canvas.set_size_inches(width, height + below + 0.16 * _legend(canvas, named))
    if without := _label(canvas, axes, figure, ink):
        named |= {of.name: handle for of, handle in zip(figure.marks, handles, strict=True) if of.name in without}
        for legend in [*canvas.legends]:
            legend.remove()
        canvas.set_size_inches(width, height + below + 0.16 * _legend(canvas, named))
    return canvas


def _rows(axes: Any, figure: Figure, width: float) -> float:
    """Name the rows, on the left or above them; return the height of all in inches."""
    names = [readable(name) for name in figure.rows]
    is_above = max(map(width_of, names)) > LEFT * width
    has_curves = any(isinstance(mark, Ridge) for mark in figure.marks)
    axes.set_yticks(range(len(names)), [""] * len(names) if is_above else names)
    if is_above:
        for at, name in enumerate(names):
            looks = {"transform": axes.get_yaxis_transform(), "va": "bottom", "in_layout": False}
            axes.text(0, at - (0.47 if has_curves else 0.34), fitting(name, width - 12), **looks)
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
    if axis.log:
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
        readable(axis.title if axis.unit in ("", "%", "s") else f"{axis.title}, {axis.unit}")
    )
    axes.grid(axis=which, color=GREY, alpha=0.25, linewidth=0.5)


def _log_ticks(ratio: float) -> ticker.Locator:
    """Return ticks within decades as long as there are few, else at powers of ten."""
    finer = [each for each in ((1, 2, 5), (1, 3)) if ratio <= FEW and len(each) * math.log10(ratio) <= MOST_TICKS]
    return ticker.LogLocator(10, (*finer, (1,))[0], numticks=MOST_TICKS + 3)


def _bars(axes: Any, mark: Bars, figure: Figure, ink: str, stacked: list[float]) -> Any:
    colour = KINDS[mark.series % len(KINDS)] if mark.stacked else colour_of(mark.series)
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
    _intervals(axes, mark.values, mark.at, (mark.low, mark.high), ink, along_x=True)
    return Patch(**looks)


def _boxes(axes: Any, mark: Boxes, figure: Figure, ink: str, stacked: list[float]) -> Any:
    colour = colour_of(mark.series)
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
    colour = ink if mark.look == "small" else colour_of(mark.series)
    if figure.rows and mark.look.startswith("small"):  # the round ends of very short lines: one path for all dots
        x = [each for value in mark.x for each in (value, value, math.nan)]
        y = [each for value in mark.y for each in (value - 0.005, value + 0.005, math.nan)]
        axes.plot(x, y, color=colour, linewidth=2.4, solid_capstyle="round", alpha=0.7)
        handle = Line2D([], [], color=colour, marker="o", markersize=2.4, markeredgewidth=0, linestyle="none")
    else:
        symbol = mark.series if mark.symbol is None else mark.symbol
        is_hollow = mark.look in ("hollow", "small")
        for ends, along_x in zip(ends_of(figure, mark), (True, False), strict=True):
            _intervals(axes, mark.x, mark.y, ends, colour, along_x=along_x)
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
    return handle


def _ridge(axes: Any, mark: Ridge, figure: Figure, ink: str, stacked: list[float]) -> Any:
    colour = colour_of(mark.series)
    tops = [mark.at - 0.45 * height for height in mark.heights]
    looks: dict[str, Any] = {"facecolor": f"{colour}38", "edgecolor": colour, "linewidth": 0.6}
    axes.fill_between(mark.x, tops, mark.at, **looks)
    return Patch(**looks)


_DRAWN: dict[type, Callable[..., Any]] = {Bars: _bars, Boxes: _boxes, Points: _points, Ridge: _ridge}


def _intervals(axes: Any, x: Sequence[float], y: Sequence[float], ends: Ends, colour: str, *, along_x: bool) -> None:
    """Draw the intervals of points along an axis."""
    values = x if along_x else y
    for at, other, value, low, high in zip(x, y, values, *_whole_ends(values, ends), strict=True):
        sizes = np.maximum([[value - low], [high - value]], 0)
        if sizes.any():
            axes.errorbar(at, other, **{"xerr" if along_x else "yerr": sizes}, **INTERVAL, ecolor=colour)


def _whole_ends(values: Sequence[float], ends: Ends) -> list[list[float]]:
    """Return the ends of intervals; one that is not known is at its value."""
    return [[value if end is None else end for value, end in zip_longest(values, several)] for several in ends]


def _legend(canvas: Canvas, named: dict[str, Any]) -> int:
    """Add a legend below if there are names; return its number of lines."""
    if not named:
        return 0
    width = canvas.get_figwidth() / POINT
    texts = [wrapped(readable(name), width - 40) for name in named]
    widest = max(width_of(line) for text in texts for line in text.split("\n")) + 32
    columns = max(1, min(len(named), int(width / widest)))
    looks = {"borderpad": 0.2, "columnspacing": 1.0, "labelspacing": 0.3, "handlelength": 1.8}
    canvas.legend(list(named.values()), texts, loc="outside lower left", ncols=columns, **looks)
    return -(-sum(text.count("\n") + 1 for text in texts) // columns)


def _at_ends(axes: Any, lines: dict[str, Points], width: float, height: float, ink: str) -> bool:
    """Write the names of lines at their right ends, one above the other, if all fit; return whether they do."""
    step = 1.25 * mpl.rcParams["font.size"] * POINT / height
    to_frame = axes.transData - axes.transAxes
    ends = sorted((*to_frame.transform((mark.x[-1], mark.y[-1]))[::-1], name) for name, mark in lines.items())
    widest = max((width_of(readable(name)) for name in lines), default=math.inf)
    if widest > BESIDE * width / POINT or step * len(ends) > 1 or min(across for _, across, _ in ends) < FAR:
        return False
    low = np.maximum.accumulate([up - step * at for at, (up, _, _) in enumerate(ends)])
    places = np.minimum(low, 1 - step * (len(ends) - 1)) + step * np.arange(len(ends))
    for (_, _, name), at in zip(ends, places, strict=True):
        end, colour = (lines[name].x[-1], lines[name].y[-1]), colour_of(lines[name].series)
        line = {"arrowstyle": "-", "color": colour, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 3}
        where = {"textcoords": "axes fraction", "va": "center", "color": ink}
        axes.annotate(readable(name), end, (1.03, at), arrowprops=line, **where)
    return True


def _label(canvas: Canvas, axes: Any, figure: Figure, ink: str) -> set[str]:
    """Write the labels of points beside them, where least is in the way; return what the legend must name instead.

    No label touches another. That of a mark that is not in the legend touches no point either, or its name goes there.
    """
    points = [mark for mark in figure.marks if isinstance(mark, Points)]
    without = set[str]()
    if not any(mark.labels for mark in points):
        return without
    canvas.draw_without_rendering()
    room, taken = 0.6 * axes.get_window_extent().width / canvas.dpi / POINT, list[Any]()
    found: list[tuple[Any, ...]] = []
    for mark in points:
        (left, right), (low, high) = map(_whole_ends, (mark.x, mark.y), ends_of(figure, mark))
        found += zip_longest([(mark, text) for text in mark.labels], mark.x, mark.y, right, left, high, low)
    labels, *columns = zip(*found, strict=True)
    x, y, right, left, high, low = np.array(columns)
    places = np.stack([right, y, left, y, x, high, x, low, *[x, y] * 4], axis=1).reshape(-1, len(PLACES), 2)
    lines = np.sort(axes.transData.transform(places[:, :4].reshape(-1, 2)).reshape(-1, 2, 2), axis=1)
    dots = axes.transData.transform(places[:, -1])
    for (mark, text), ends in [each for each in zip(labels, places, strict=True) if each[0] and each[0][1]]:
        label, looks = fitting(readable(text), room), {"textcoords": "offset points", "color": ink}
        notes = [
            axes.annotate(label, at, (dx, dy), ha=ha, va=va, **looks)
            for at, (dx, dy, ha, va) in zip(ends, PLACES, strict=True)
        ]
        boxes = [note.get_window_extent() for note in notes]
        free = [
            at
            for at, box in enumerate(boxes)
            if (box.min >= axes.bbox.min).all()
            and (box.max <= canvas.bbox.max).all()
            and not box.count_overlaps(taken)
            and (mark.listed or not box.padded(2.5 * canvas.dpi * POINT).count_contains(dots))
        ]
        best = min(free, key=lambda at: boxes[at].count_overlaps(lines), default=len(notes))
        taken += boxes[best : best + 1]
        without |= set() if free or mark.listed else {mark.name}
        for note in notes[:best] + notes[best + 1 :]:
            note.remove()
    return without


def _heat(canvas: Canvas, axes: Any, figure: Figure, heat: Heat) -> None:
    """Draw a heat map: as a picture, so that some thousands of cells are small."""
    width = canvas.get_figwidth()
    cells = np.array([[math.nan if value is None else value for value in row] for row in heat.values])
    colours = LinearSegmentedColormap.from_list("", [SIDES[0], "#f4f2ee", SIDES[1]])
    looks = {"cmap": colours, "vmin": -heat.limit, "vmax": heat.limit}
    image = axes.imshow(cells, aspect="auto", interpolation="nearest", **looks)
    height = min(TALLEST, max(1.0, LOW_ROW * len(figure.rows)))
    rows = range(0, len(figure.rows), -(-len(figure.rows) // int(height / LOW_ROW)))
    columns = range(0, len(heat.columns), -(-len(heat.columns) // int(width / 0.35)))
    names = [fitting(readable(heat.columns[at]), 90) for at in columns]
    axes.set_yticks(rows, [fitting(readable(figure.rows[at]), 0.5 * width / POINT) for at in rows])
    axes.set_xticks(columns, names, rotation=90)
    axes.tick_params(length=0, labeltop=True, labelbottom=False)
    axes.spines[:].set_visible(False)
    percent = ticker.PercentFormatter(1, decimals=0)
    canvas.colorbar(image, ax=axes, location="bottom", fraction=0.1, aspect=30, format=percent).outline.set_visible(
        False
    )
    canvas.set_size_inches(width, height + max(map(width_of, names)) * POINT + 0.5)
