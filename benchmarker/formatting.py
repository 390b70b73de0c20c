"""Format numbers with SI prefixes, durations, and text that neither a terminal nor a spreadsheet will execute."""

from __future__ import annotations

import math
import re


def clean(text: str) -> str:
    """Return the text with control characters escaped, so that an untrusted name cannot control the terminal."""
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)


_FORMULA = re.compile(r"\s*[=+\-@]|[\t\r]")


def spreadsheet_text(text: str) -> str:
    """Return the text with an apostrophe before it if a spreadsheet would read it as a formula.

    The CSV of a report follows the same rule (`field` in report/page.js). Source: OWASP, "CSV Injection".
    """
    return f"'{text}" if _FORMULA.match(text) else text


_PREFIXES = {12: "T", 9: "G", 6: "M", 3: "k", 0: "", -3: "m", -6: "µ", -9: "n"}


def si(value: float | None, unit: str) -> str:
    """Format a value to four digits with its unit and, if the unit takes one, an SI prefix; `-` for None.

    Bytes use powers of 1024 (IEC 80000-13). Samples per second and per joule take no prefix. Shares have no unit.
    """
    if value is None:
        return "-"
    if unit == "B":
        power = min(4, int(math.log(value, 1024))) if value >= 1 else 0
        return f"{value / 1024**power:.4g} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"
    if unit == "1":
        return f"{value:.3g}"
    if unit in ("1/s", "1/J") or value == 0:
        return f"{value:.4g}" if value < 10_000 else f"{value:.0f}"
    exponent = max(-9, min(12, 3 * math.floor(math.log10(abs(value)) / 3)))
    return f"{value / 10**exponent:.4g} {_PREFIXES[exponent]}{unit}"


def duration_text(seconds: float) -> str:
    """Format a duration for display: `40 s`, `12 min`, `3 h 20 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
