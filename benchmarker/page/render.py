"""Render the page as one HTML file that contains everything it needs: text, style, script, figures and data."""

from __future__ import annotations

import json
import re
import zlib
from base64 import b64encode
from importlib.resources import files
from itertools import chain, count
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from benchmarker.page.page_model import Figure, Page, axes_of, legend_of, plain, readable
from benchmarker.tables.shortening import apart
from benchmarker.tables.table import Table, cell_text

MARKS = {"faster": "▲", "better": "▲", "slower": "▼", "worse": "▼", "same": "=", "undecided": "?", "none": ""}
"""Signs of verdicts, so that they do not differ by colour alone."""
LONG = 30
"""Tables with more rows scroll in a box of their own, and are laid out when they are scrolled to."""
SCRIPTS = ("base", "axes", "marks", "figure", "explore", "icicle", "timeline", "tables", "page")
"""The files of the page's script, in the order in which they are joined: later ones use what earlier ones define."""
WIDEST_TEXT = 120
"""Characters of a longer text of a table that are shown; the whole is in its title, and in CSV."""
LONGEST = 60
"""Characters of a text in the name of its place."""
_NEITHER = re.compile(r"[^a-z0-9]+")
_WHOLE = re.compile(r"(?<![\w-])--[a-z][a-z-]*|\b\d{4}-\d\d-\d\d\b")
_CODE = re.compile(r"`([^`]+)`")


def render(page: Page) -> bytes:
    """Return the HTML; the same page always gives the same bytes."""

    def shown(value: object) -> object:
        return readable(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    here = files(__package__)
    environment = Environment(
        autoescape=True, finalize=shown, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    scripts = "\n".join((here / f"{name}.js").read_text("utf-8") for name in SCRIPTS)
    text = environment.from_string((here / "page.html").read_text("utf-8")).render(
        page=page,
        marks=MARKS,
        amount=cell_text,
        prose=prose,
        places=_Places(),
        whole=lambda text: Markup(_unbroken(text)),  # noqa: S704  # escaped there
        is_long=lambda table: len(table.rows) > LONG,
        shorter=_shorter,
        is_figure=lambda part: isinstance(part, Figure),
        style=Markup((here / "page.css").read_text("utf-8")),  # noqa: S704
        script=Markup(f'"use strict";\n(() => {{\n{scripts}}})();'),  # noqa: S704
        figures=compressed([specification(each) for each in page.figures]),
    )
    return text.encode()


def _shorter(table: Table) -> dict[str, str]:
    """Return the texts of a table that are longer than some lines, such as names of kernels, and what is shown."""
    plain_ = [at for at, column in enumerate(table.columns) if not (column.numeric or column.command or column.prose)]
    texts = list({cell for row in table.rows for at in plain_ if isinstance(cell := row[at], str)})
    return {text: short for text, short in zip(texts, apart(texts, WIDEST_TEXT), strict=True) if text != short}


class _Places:
    """The places on the page that links lead to: their names, each given once."""

    def __init__(self) -> None:
        self._texts: set[tuple[str, str]] = set()
        self._names: set[str] = set()

    def first(self, kind: str, text: str) -> str:
        """Return the name of the first place with this text; empty for the others."""
        if (kind, text) in self._texts:
            return ""
        self._texts.add((kind, text))
        return self.new(kind, text)

    def new(self, kind: str, text: str) -> str:
        """Return the name of a place with a text that others may have too."""
        name = f"{kind}-{_NEITHER.sub('-', text.lower()).strip('-')[:LONGEST]}"
        names = chain([name], (f"{name}-{number}" for number in count(2)))
        found = next(each for each in names if each not in self._names)
        self._names.add(found)
        return found


def compressed(value: object) -> str:
    """Return JSON as gzip with fixed Huffman codes, which base.js reads, in base 64, which contains no markup.

    ASCII is never stored uncompressed, as its letters have codes of 8 bits.
    """
    gzip = zlib.compressobj(level=9, wbits=31, memLevel=9, strategy=zlib.Z_FIXED)
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return b64encode(gzip.compress(text.encode()) + gzip.flush()).decode()


def specification(figure: Figure) -> dict[str, Any]:
    """Return the figure as plain values: axes, marks by their type, and its data; texts are those that are shown."""
    columns = [{"name": each.name, "unit": each.unit} for each in figure.data.columns]
    x, y = axes_of(figure)
    found: dict[str, Any] = {
        "key": figure.key,
        "rows": figure.rows,
        "x": plain(x),
        "y": plain(y),
        "lines": figure.lines,
        "bands": plain(figure.bands),
        "legend": [entry._asdict() for entry in legend_of(figure)],
        "marks": [{"type": type(mark).__name__.lower(), **plain(mark)} for mark in figure.marks],
        "data": {"columns": columns, "rows": figure.data.rows},
    }
    return {name: _shown(part) for name, part in found.items()}


def _shown(part: Any) -> Any:
    """Return plain values with texts as they are shown."""
    if isinstance(part, str):
        return readable(part)
    if isinstance(part, dict):
        return {name: _shown(inner) for name, inner in part.items()}
    return [_shown(inner) for inner in part] if isinstance(part, list | tuple) else part


def prose(text: str) -> Markup:
    """Return a sentence as markup: what stands between backticks is code, and options and dates stay on one line."""
    return Markup(_CODE.sub(r"<code>\1</code>", _unbroken(text)))  # noqa: S704  # escaped there


def _unbroken(text: str) -> str:
    return _WHOLE.sub(r'<span class="whole">\g<0></span>', str(escape(readable(text))))
