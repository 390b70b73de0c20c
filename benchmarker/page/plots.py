"""Figures of the page as files for papers, with their data beside them, and as a piece of a notebook."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Mapping
from html import escape
from pathlib import Path
from xml.etree import ElementTree

from benchmarker.api.errors import UserError
from benchmarker.files import atomic
from benchmarker.formatting import clean
from benchmarker.hooks.registry import needing
from benchmarker.page.page_model import Figure
from benchmarker.tables.formats import csv_text

FORMATS = (".png", ".svg", ".pdf")
COLUMN, CELL = 3.5, 6.0
"""Widths in inches: of a column of a paper, and of a figure in a notebook."""
_INK = "#010203"
"""The colour of text and axes in a notebook, in whose place that of the text around the figure is put."""
_LINK = "{http://www.w3.org/1999/xlink}href"
_NUMBER = re.compile(r"-?\d+\.\d+")
_FAMILY = re.compile(r"font-family: [^;]*; ")


def save(figure: Figure, path: Path) -> str:
    """Write a figure as .svg, .pdf or .png and its data beside it as .csv; return the names of both, and the caption.

    It is as wide as a column of a paper, 3.5 inches, with its caption in the file's metadata. The same figure gives the
    same bytes. Raises `UserError` if the format is unknown, if a file cannot be written, or if matplotlib is missing.
    """
    form = path.suffix.lower()
    if form not in FORMATS:
        raise UserError(f"cannot draw {path}: the supported formats are {', '.join(FORMATS)}")
    title = clean(figure.title)
    caption = clean(" ".join(filter(None, (f"{figure.title}.", figure.caption, figure.left_out))))
    metadata: dict[str, dict[str, str | None]] = {
        ".svg": {"Title": title, "Description": caption, "Date": None},
        ".pdf": {"Title": title, "Subject": caption, "CreationDate": None},
        ".png": {"Title": title, "Description": caption},
    }
    data = path.with_suffix(".csv")
    picture = _drawn(figure, form[1:], COLUMN, 8, "#000000", "path", metadata[form])
    atomic.save(path, picture)
    atomic.save(data, csv_text(*figure.data.data).encode())
    return f"figure: {clean(str(path))}, its data: {clean(str(data))}\n{caption}"


def inline(figure: Figure) -> str:
    """Return a figure as SVG in HTML, with its caption; its text is text, in the colour and the font around it.

    It has no links, and ids only of hatches and frames. Raises `UserError` if matplotlib is missing.
    """
    drawn = _drawn(figure, "svg", CELL, 9, _INK, "none", {"Date": None})
    root = ElementTree.fromstring(drawn)  # noqa: S314  # made here
    shapes = {f"#{element.get('id')}": element for element in root.iter()}
    title = escape(clean(figure.title))
    inner = "".join(_markup(element, shapes) for element in root)
    size = f'viewBox="{root.get("viewBox")}" width="{CELL * 96:.0f}" style="max-width: 100%; height: auto"'
    told = escape(clean(" ".join(filter(None, (figure.caption, figure.left_out)))))
    caption = f"<figcaption><strong>{title}.</strong> {told}</figcaption>"
    return (
        f'<figure><svg {size} role="img" aria-label="{title}" stroke-linejoin="round">{inner}</svg>{caption}</figure>\n'
    )


def _markup(element: ElementTree.Element, shapes: Mapping[str, ElementTree.Element]) -> str:
    """Return an element of SVG as HTML, with each symbol where it is used: figures of a notebook share their ids."""
    tag, attributes = element.tag.rpartition("}")[2], {**element.attrib}
    name, style = attributes.pop("id", ""), attributes.get("style", "")
    if tag in ("metadata", "style") or style == "fill: none" or (tag == "path" and name):
        return ""
    if tag == "use":
        shape = shapes[attributes.pop(_LINK)]
        at = f"translate({attributes.pop('x')} {attributes.pop('y')})"
        return _markup(ElementTree.Element("path", {"d": shape.get("d", ""), "transform": at, "style": style}), shapes)
    inner = escape(element.text or "") if tag == "text" else "".join(_markup(each, shapes) for each in element)
    if tag in ("g", "defs") and not (inner and attributes):
        return inner if tag == "g" else f"<defs>{inner}</defs>" * bool(inner)
    if tag in ("clipPath", "pattern"):
        attributes["id"] = name
    if tag == "image":
        attributes["href"] = attributes.pop(_LINK)
    if "d" in attributes:
        attributes["d"] = " ".join(_NUMBER.sub(lambda number: f"{float(number[0]):.4g}", attributes["d"]).split())
    attributes["style"] = _FAMILY.sub("", style).replace(_INK, "currentColor")
    written = "".join(f' {key}="{escape(value)}"' for key, value in attributes.items() if value)
    return f"<{tag}{written}>{inner}</{tag}>"


def _drawn(
    figure: Figure, form: str, width: float, size: int, ink: str, texts: str, metadata: dict[str, str | None]
) -> bytes:
    """Return a drawing, `width` inches wide, with text of `size` pt; in SVG, `texts` are a "path" or "none"."""
    with needing("plot", "a figure"):
        from benchmarker.page.drawing import drawing
    from matplotlib import style

    from benchmarker.page.drawing_style import settings

    content = io.BytesIO()
    with style.context(["default", {**settings(size, ink), "svg.fonttype": texts}]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph \d+")  # a letter that the font lacks is a box
        drawing(figure, width, ink).savefig(content, format=form, metadata=metadata)
    return content.getvalue()
