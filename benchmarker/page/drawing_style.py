"""What all drawings of matplotlib have in common: settings, the colours of the page, and texts that fit a width."""

from __future__ import annotations

import re
import textwrap
from importlib.resources import files
from typing import Any

import matplotlib as mpl
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

from benchmarker.formatting import shortened

_SIZES = ("font.size", "axes.labelsize", "legend.fontsize", "xtick.labelsize", "ytick.labelsize")
_INKS = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
_SETTINGS: dict[str, Any] = {
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
"""The font comes with matplotlib, and is embedded in PDF."""
POINT = 1 / 72
"""A point (pt) in inches."""
GREY = "#8a8f98"


def settings(size: int, ink: str) -> dict[str, Any]:
    """Return the settings of matplotlib for text of `size` pt, and text and axes in the colour `ink`."""
    return {**_SETTINGS, **dict.fromkeys(_SIZES, size), **dict.fromkeys(_INKS, ink)}


def _palette() -> tuple[list[str], ...]:
    """Return the colours of sides, kinds, idle causes and copies that the page has on light ground."""
    style = (files(__package__) / "page.css").read_text("utf-8").partition("}")[0]
    return tuple(re.findall(rf"--{name}: (#\w{{6}})", style) for name in (r"s\d", r"k\d", r"i\d", "copy"))


SIDES, KINDS, IDLE, COPY = _palette()


def colour_of(series: int) -> str:
    """Return the colour of a side."""
    return SIDES[series % len(SIDES)]


def width_of(text: str) -> float:
    """Return the width of a text in pt."""
    font = FontProperties(size=mpl.rcParams["font.size"])
    return float(text_to_path.get_text_width_height_descent(text, font, ismath=False)[0])


def fitting(text: str, room: float) -> str:
    """Return a text that is at most so many pt wide, shortened in the middle."""
    made, most = text, len(text)
    while most > 3 and (width := width_of(made)) > room:
        most = max(3, min(most - 1, int(most * room / width)))
        made = shortened(text, most)
    return made


def wrapped(text: str, room: float) -> str:
    """Return a text on lines of about so many pt."""
    return textwrap.fill(text, max(8, int(len(text) * room / max(room, width_of(text)))))
