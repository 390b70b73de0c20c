"""Render the page as one HTML file that contains everything it needs: text, style, script, figures and data."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import TYPE_CHECKING

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from benchmarker.report.figures import escaped, specification
from benchmarker.report.page_model import Figure
from benchmarker.report.text import prose, readable
from benchmarker.tables.table import cell_text

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
