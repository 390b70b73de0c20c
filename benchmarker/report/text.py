"""Texts from records as the page shows them."""

from __future__ import annotations

import re

from markupsafe import Markup, escape

from benchmarker.formatting import clean

_BREAKS = re.compile(r"\s*[\n\r\t]\s*")
_CODE = re.compile(r"`([^`]+)`")


def readable(text: str) -> str:
    """Return the text with line breaks and tabs as spaces, and other control characters escaped."""
    return clean(_BREAKS.sub(" ", text))


def prose(text: str) -> Markup:
    """Return a sentence as markup: what stands between backticks is code, everything else is text."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(readable(text)))))  # noqa: S704  # escaped before
