"""Render the page as one HTML file that contains everything it needs: text, style, script, figures and data."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape
from plotly.offline import get_plotlyjs

from benchmarker.formatting import clean, shortened, si
from benchmarker.page.page_model import Axis, Bars, Boxes, Figure, Heat, Mark, Points, Ridge
from benchmarker.tables.table import Table, cell_text

if TYPE_CHECKING:
    from benchmarker.page.page_model import Page


MARKS = {"faster": "▲", "better": "▲", "slower": "▼", "worse": "▼", "same": "=", "undecided": "?", "none": "-"}
"""Signs of verdicts, so that they do not differ by colour alone."""
LONG = 30
"""Tables with more rows scroll in a box of their own, and are laid out when they are scrolled to."""
WIDEST = 56
"""Longer row names are shortened in the middle."""
_ENTITIES = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;"}
_FORMATS = {"s": "~s", "%": ".0%"}
"""Tick formats by unit (d3-format); `~s` adds SI prefixes."""
_THOUSAND = 1000
_FEW_TICKS, _MANY_TICKS = 5, 1000
"""Limits on the ratio of the largest to the least value of a logarithmic axis.

Up to the former the axis is linear. Up to the latter it has ticks at 1, 2 and 5, above only at powers of ten.
"""
RIDGE = 0.45
"""Height of a curve above its row, in rows."""
_MODES = {"line": "lines", "line and dots": "lines+markers"}
_BREAKS = re.compile(r"\s*[\n\r\t]\s*")
_CODE = re.compile(r"`([^`]+)`")


def render(page: Page) -> bytes:
    """Return the HTML; the same page always gives the same bytes."""

    def shown(value: object) -> object:
        return readable(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    here = files(__package__)
    environment = Environment(
        autoescape=True, finalize=shown, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    figures = [part for section in page.sections for part in section.parts if isinstance(part, Figure)]
    plotly = Markup(get_plotlyjs()) if figures else ""  # noqa: S704  # the library's own text
    text = environment.from_string((here / "page.html").read_text("utf-8")).render(
        page=page,
        marks=MARKS,
        amount=cell_text,
        prose=prose,
        is_long=lambda table: len(table.rows) > LONG,
        is_figure=lambda part: isinstance(part, Figure),
        style=Markup((here / "page.css").read_text("utf-8")),  # noqa: S704
        script=Markup((here / "page.js").read_text("utf-8")),  # noqa: S704
        plotly=plotly,
        figures=Markup(escaped(_json([specification(each) for each in figures]))),  # noqa: S704
    )
    return text.encode()


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def specification(figure: Figure) -> dict[str, Any]:
    """Return the figure as plain values: traces, layout, and its data."""
    return {
        "key": figure.key,
        "dense": any(isinstance(mark, Heat) for mark in figure.marks),
        "traces": [_trace(figure, mark) for mark in figure.marks],
        "layout": _layout(figure),
        "rows": [plain(shortened(row, WIDEST)) for row in figure.rows],
        "data": data(figure.data),
    }


def data(table: Table) -> dict[str, Any]:
    """Return a table as plain values; control characters in texts are escaped."""
    return {
        "columns": [{"name": readable(each.name), "unit": each.unit} for each in table.columns],
        "rows": [[readable(cell) if isinstance(cell, str) else cell for cell in row] for row in table.rows],
    }


def plain(text: str) -> str:
    """Return a text that Plotly shows unchanged."""
    return readable(text).translate(_ENTITIES)


def _trace(figure: Figure, mark: Mark) -> dict[str, Any]:
    common = {"name": plain(mark.name), "series": mark.series}
    if isinstance(mark, Bars):
        return common | _bars(figure, mark)
    if isinstance(mark, Boxes):
        return common | _boxes(mark)
    if isinstance(mark, Heat):
        return common | _heat(mark)
    if isinstance(mark, Ridge):
        return common | _ridge(mark)
    return common | _points(figure, mark)


def _heat(mark: Heat) -> dict[str, Any]:
    return {
        "type": "heatmap",
        "z": mark.values,
        "x": list(range(len(mark.columns))),
        "y": list(range(len(mark.values))),
        "zmin": -mark.limit,
        "zmax": mark.limit,
        "hovertext": [[plain(text) for text in row] for row in mark.texts],
        "hoverinfo": "text",
    }


def _bars(figure: Figure, mark: Bars) -> dict[str, Any]:
    texts = []
    lows, highs = mark.low or (None,) * len(mark.at), mark.high or (None,) * len(mark.at)
    for at, value, low, high in zip(mark.at, mark.values, lows, highs, strict=True):
        text = f"{plain(figure.rows[at])}<br>"
        text += f"{plain(mark.name)}: " * mark.stacked + _shown(value, figure.x)
        if low is not None and high is not None:
            text += f" [{_shown(low, figure.x)}, {_shown(high, figure.x)}]"
        texts.append(text)
    found: dict[str, Any] = {
        "type": "bar",
        "orientation": "h",
        "x": mark.values,
        "y": mark.at,
        "hovertext": texts,
        "hoverinfo": "text",
        "stacked": mark.stacked,
    }
    if any(low is not None for low in lows):
        found["error_x"] = _errors(mark.values, lows, highs)
    return found


def _errors(
    values: tuple[float, ...], lows: tuple[float | None, ...], highs: tuple[float | None, ...]
) -> dict[str, Any]:
    return {
        "type": "data",
        "symmetric": False,
        "array": [None if high is None else high - value for value, high in zip(values, highs, strict=True)],
        "arrayminus": [None if low is None else value - low for value, low in zip(values, lows, strict=True)],
    }


def _boxes(mark: Boxes) -> dict[str, Any]:
    p5, q1, median, q3, p95 = zip(*mark.five, strict=True)
    return {
        "type": "box",
        "orientation": "h",
        "y": mark.at,
        "lowerfence": p5,
        "q1": q1,
        "median": median,
        "q3": q3,
        "upperfence": p95,
        "hoverinfo": "x",
    }


def _ridge(mark: Ridge) -> dict[str, Any]:
    up = [mark.at - RIDGE * height for height in mark.heights]
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [*mark.x, mark.x[-1], mark.x[0]],
        "y": [*up, mark.at, mark.at],
        "look": "line",
        "symbol": 0,
        "fill": "toself",
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _points(figure: Figure, mark: Points) -> dict[str, Any]:
    found: dict[str, Any] = {
        "type": "scatter",
        "mode": _MODES.get(mark.look, "markers"),
        "x": mark.x,
        "y": mark.y,
        "look": mark.look,
        "symbol": mark.series if mark.symbol is None else mark.symbol,
        "hoverinfo": "text" if mark.texts else "x+y+name",
    }
    if mark.texts:
        found["hovertext"] = [plain(text) for text in mark.texts]
    if not mark.listed:
        found["showlegend"] = False
    if mark.labels:
        found |= {"mode": f"{found['mode']}+text", "text": [plain(shortened(text, WIDEST)) for text in mark.labels]}
    if any(end is not None for end in (*mark.low, *mark.high)):
        across, values = ("error_y", mark.y) if figure.y else ("error_x", mark.x)
        found[across] = _errors(values, mark.low, mark.high)
    return found


def _layout(figure: Figure) -> dict[str, Any]:
    if isinstance(heat := figure.marks[0], Heat):
        columns = [plain(shortened(name, WIDEST)) for name in heat.columns]
        ticks = {"tickmode": "array", "tickvals": list(range(len(columns))), "ticktext": columns, "side": "top"}
        return {"xaxis": {**ticks, "title": {"text": ""}, "showgrid": False}, "showlegend": False, "shapes": []}
    names = {mark.name for mark in figure.marks}
    layout: dict[str, Any] = {
        "xaxis": _axis(figure.x, [*figure.lines, *(x for mark in figure.marks for x in _across(figure, mark))]),
        "showlegend": len(names) > 1,
    }
    if figure.y:
        up = [y for mark in figure.marks if isinstance(mark, Points) for y in (*mark.y, *_ends(mark))]
        layout["yaxis"] = _axis(figure.y, up)
    if any(isinstance(mark, Bars) for mark in figure.marks):
        layout["barmode"] = (
            "stack" if any(isinstance(mark, Bars) and mark.stacked for mark in figure.marks) else "overlay"
        )
    whole = {"yref": "paper", "y0": 0, "y1": 1, "layer": "below"}
    layout["shapes"] = [{"type": "line", "x0": at, "x1": at, **whole} for at in figure.lines]
    bands = [{"type": "rect", "x0": band.start, "x1": band.end, **whole} for band in figure.bands]
    layout["shapes"] = [*bands, *layout["shapes"]]
    return layout


def _across(figure: Figure, mark: Mark) -> Sequence[float]:
    """Return the values of a mark along x, including the ends of its intervals if they are."""
    if isinstance(mark, Points):
        return mark.x if figure.y else [*mark.x, *_ends(mark)]
    assert not isinstance(mark, Heat)
    if isinstance(mark, Ridge):
        return mark.x
    return mark.values if isinstance(mark, Bars) else [each for five in mark.five for each in five]


def _ends(mark: Points) -> list[float]:
    """Return the ends of the intervals of points."""
    return [end for end in (*mark.low, *mark.high) if end is not None]


def _axis(axis: Axis, values: Sequence[float]) -> dict[str, Any]:
    wide = max(values) / min(values) if axis.log else 1.0
    log = axis.log == "always" or wide > _FEW_TICKS
    found: dict[str, Any] = {
        "title": {"text": plain(axis.title if not axis.unit or axis.unit == "%" else f"{axis.title}, {axis.unit}")},
        "tickformat": _FORMATS.get(axis.unit, "~s" if max(values) >= _THOUSAND else "~g"),
        "type": "log" if log else "linear",
    }
    if log:
        found |= {"dtick": 1} if wide > _MANY_TICKS else {"dtick": "D2"} if wide > _FEW_TICKS else {}
    if axis.unit == "s":
        found |= {"ticksuffix": "s", "hoverformat": ".4~s", "title": {"text": plain(axis.title)}}
    if len(axis.limit) > 1:
        found["range"] = axis.limit
    elif axis.limit:
        found["rangemode"] = "tozero"
    return found


def _shown(value: float, axis: Axis) -> str:
    if axis.unit == "%":
        return f"{value:.1%}"
    return plain(si(value, axis.unit)) if axis.unit else f"{value:.4g}"


def escaped(text: str) -> str:
    """Return JSON that is safe in a script element: it contains no markup and no line separators."""
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def readable(text: str) -> str:
    """Return the text with line breaks and tabs as spaces, and other control characters escaped."""
    return clean(_BREAKS.sub(" ", text))


def prose(text: str) -> Markup:
    """Return a sentence as markup: what stands between backticks is code, everything else is text."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(readable(text)))))  # noqa: S704  # escaped before
