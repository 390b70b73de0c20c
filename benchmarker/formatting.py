"""Format numbers with SI prefixes, durations, and names without control characters."""

from __future__ import annotations

import math


def clean(text: str) -> str:
    """Return the text with control characters escaped, so that an untrusted name cannot control the terminal."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)


_PREFIXES = {12: "T", 9: "G", 6: "M", 3: "k", 0: "", -3: "m", -6: "µ", -9: "n"}


def si(value: float | None, unit: str, digits: int = 4) -> str:
    """Format a value to at most four digits with its unit and, if the unit takes one, an SI prefix; `-` for None.

    Bytes use powers of 1024 (IEC 80000-13). Samples per second and per joule take no prefix. Shares have no unit.
    """
    if value is None:
        return "-"
    if unit == "B":
        power = min(4, int(math.log(value, 1024))) if value >= 1 else 0
        return f"{_rounded(value / 1024**power, digits)} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"
    if unit == "1":
        return f"{value:.3g}"
    if unit in ("1/s", "1/J") or value == 0:
        return _rounded(value, digits) if value < 10_000 else f"{value:.0f}"
    exponent = max(-9, min(12, 3 * math.floor(math.log10(abs(value)) / 3)))
    return f"{_rounded(value / 10**exponent, digits)} {_PREFIXES[exponent]}{unit}"


def _rounded(value: float, digits: int) -> str:
    """Return a value with that many significant digits, and without an exponent below a million."""
    return f"{float(f'{value:.{digits}g}'):.6g}"


def duration_text(seconds: float) -> str:
    """Format a duration for display: `40 s`, `12 min`, `3 h 20 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
