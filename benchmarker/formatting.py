"""Numbers with SI prefixes, durations (also from text), and text that neither a terminal nor a spreadsheet executes."""

import math
import re
from collections.abc import Collection, Sequence


def clean(text: str) -> str:
    """Return the text with control characters escaped, so that an untrusted name cannot control the terminal."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)


def one_line(text: str) -> str:
    """Return a message on one line: each run of white space, which may contain line breaks, becomes one space."""
    return " ".join(text.split())


def error_line(error: BaseException, place: str = "") -> str:
    """Return an error on one line: its type, its message, where it arose, and its notes."""
    text = one_line(str(error))[:300]
    notes = "; ".join(("", *getattr(error, "__notes__", ())))
    return (f"{type(error).__name__}: {text}" if text else type(error).__name__) + place + one_line(notes)


def shortened(text: str, most: int) -> str:
    """Return the text, shortened in the middle to this many characters."""
    return text if len(text) <= most else f"{text[: most // 2]}…{text[len(text) - (most - 1) // 2 :]}"


def nearest(name: str, known: Collection[str], most: int = 3) -> str:
    """Return what a user may have meant by a name, for the end of an error: the nearest of those known, or all."""
    import difflib

    near = difflib.get_close_matches(name, known, n=most)
    return f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(known) or 'none'}"


_FORMULA = re.compile(r"\s*[=+\-@]|[\t\r]")


def spreadsheet_text(text: str) -> str:
    """Return the text with an apostrophe before it if a spreadsheet would read it as a formula.

    The CSV of a report follows the same rule (`field` in page/tables.js). Source: OWASP, "CSV Injection".
    """
    return f"'{text}" if _FORMULA.match(text) else text


_PREFIXES = {12: "T", 9: "G", 6: "M", 3: "k", 0: "", -3: "m", -6: "µ", -9: "n"}


def si(value: float | None, unit: str, digits: int = 4) -> str:
    """Format a value to at most four digits with its unit and, if the unit takes one, an SI prefix; `-` for None.

    Amounts of bytes use powers of 1024 (`GiB`, IEC 80000-13), rates such as `GB/s` powers of 1000. Samples per second
    and per joule take no prefix. Shares have no unit.
    """
    if value is None:
        return "-"
    if unit == "1":
        return f"{value:.3g}"
    if unit in ("1/s", "1/J") or (value == 0 and unit != "B"):
        return rounded(value, digits)
    size, prefixed = scale(value, unit)
    return f"{rounded(value / size, digits)} {prefixed}"


def scale(value: float, unit: str) -> tuple[float, str]:
    """Return the size of the prefixed unit that suits a value, in the unit itself, and its name: `(1e-3, "ms")`.

    It follows the rules of `si`; a unit that takes no prefix has the size 1.
    """
    if unit == "B":
        power = min(4, int(math.log(value, 1024))) if value >= 1 else 0
        return 1024.0**power, ("B", "KiB", "MiB", "GiB", "TiB")[power]
    if unit in ("1", "1/s", "1/J") or value == 0:
        return 1.0, unit
    exponent = max(-9, min(12, 3 * math.floor(math.log10(abs(value)) / 3)))
    return 10.0**exponent, _PREFIXES[exponent] + unit


def within(value: float, ends: Sequence[float | None], unit: str) -> str:
    """Format a value and, if they are known, the ends of its interval: `10 ms [9.8 ms, 11 ms]`."""
    return si(value, unit) + (f" [{', '.join(si(end, unit) for end in ends)}]" if None not in ends else "")


def with_interval(value: float, low: float | None, high: float | None, unit: str) -> str:
    """Format a value with the ends of its interval in the same unit: `10 [9.8, 11] µs`; without one, the value."""
    size, prefixed = scale(value, unit)
    ends = (
        ""
        if low is None and high is None
        else ", ".join("?" if end is None else rounded(end / size, 3) for end in (low, high))
    )
    return f"{rounded(value / size, 3)}{f' [{ends}]' if ends else ''} {prefixed}".rstrip()


def decimals(half: float) -> int:
    """Return the decimals that an interval of ± `half`, above 0, leaves meaningful.

    They show one significant digit of `half`, or two if the first one is 1.
    """
    magnitude = math.floor(math.log10(half))
    return max(0, (half < 2 * 10.0**magnitude) - magnitude)


def rounded(value: float, digits: int) -> str:
    """Return a value with that many significant digits, and without an exponent from 0.0001 on."""
    number = float(f"{value:.{digits}g}")
    return f"{number:.6g}" if abs(number) < 1e6 else f"{number:.0f}"


def value_text(value: object) -> str:
    """Return a value of a parameter or a setting as plan files have it: `true`, `4096`, `fit`."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def sentence(text: str) -> str:
    """Return words as a sentence: with a full stop, and a capital letter unless they begin with a name and a colon."""
    first, *_ = text.split(maxsplit=1)
    return f"{text[0].upper() if first.isalpha() else text[0]}{text[1:]}."


def count(number: int, one: str, several: str = "") -> str:
    """Return a number of things, with the plural that fits: `1 fault`, `2 faults`, `3 processes`."""
    return f"{number} {one if number == 1 else several or one + 's'}"


def some(texts: Sequence[str], most: int, between: str = ", ") -> str:
    """Return texts in one, of many the first ones and the number of the others: `a, b and 3 more`, `a; and 4 more`."""
    more = f"{';' * (between == '; ')} and {len(texts) - most} more" if len(texts) > most else ""
    return between.join(texts[:most]) + more


def every(texts: Sequence[str]) -> str:
    """Return texts in one: `a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, [", ".join(texts[:-1]), *texts[-1:]]))


def part(number: int, total: int, one: str, *verbs: str) -> str:
    """Return a part of a number of things: `2 of 3 trials`; with two verbs, the one that fits: `1 of 3 trials was`."""
    return " ".join([f"{number} of {count(total, one)}", *verbs[number != 1 :][:1]])


_DURATION = re.compile(r"\s*([-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[-+]?\d+)?)\s*(ms|s|m|min|h)?\s*")
EXAMPLES_OF_DURATIONS = "250ms, 90s, 10m or 1.5h"
_SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def duration_s(text: str, unit: str = "s") -> float:
    """Return the seconds of a duration such as `250ms`, `90s`, `10m` or `1.5h`; a bare number is in `unit`.

    Raises ValueError, with examples, if the text is something else.
    """
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a time: write {EXAMPLES_OF_DURATIONS}")
    return float(match[1]) * _SECONDS[match[2] or unit]


def duration_text(seconds: float) -> str:
    """Format a duration for display: `40 s`, `12 min`, `3 h 20 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def share(text: str) -> float:
    """Return a share written as `2%` or `0.02`; raises ValueError unless it is greater than 0 and less than 1."""
    try:
        value = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise ValueError("not a share between 0 and 1: write 2% or 0.02")
    return value


def names_in(text: str) -> list[str]:
    """Return the names in a list separated by commas, each once."""
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
