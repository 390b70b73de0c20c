"""Render the page as one HTML file that contains everything it needs: text, style, script, figures and data."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from typing import TYPE_CHECKING

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from benchmarker.comparing.formatting import figure
from benchmarker.formatting import si
from benchmarker.report.figures import escaped, specification
from benchmarker.report.page_model import P_VALUE, RATIO, Cell, Column, Figure
from benchmarker.report.text import prose, readable

if TYPE_CHECKING:
    from benchmarker.report.page_model import Page

MARKS = {"faster": "▲", "better": "▲", "slower": "▼", "worse": "▼", "same": "=", "undecided": "?", "none": "-"}
"""Signs of verdicts, so that they do not differ by colour alone."""

LONG = 30
"""Tables with more rows scroll in a box of their own, and are laid out when they are scrolled to."""


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
        amount=cell,
        prose=prose,
        heading=heading,
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


_UNIT = re.compile(r"(?<!_per)_(s|J|W|bytes)$")


def heading(column: Column) -> str:
    """Return the heading of a column; units are shown in the cells, except for rates."""
    name = _UNIT.sub("", column.name) if column.unit else column.name
    return name.replace("_per_", "/").replace("_", " ") if column.numeric else name


def cell(value: Cell, column: Column) -> str:
    """Return a value as text for a table."""
    if value is None:
        return "-" if column.numeric else ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if column.unit == RATIO:
        return figure(value)
    if column.unit == P_VALUE:
        return f"{value:.2g}"
    if column.unit == "%":
        return f"{value:.1%}"
    if column.unit:
        return si(value, column.unit)
    return str(value) if isinstance(value, int) else f"{value:.4g}" if abs(value) < 10_000 else f"{value:.0f}"
