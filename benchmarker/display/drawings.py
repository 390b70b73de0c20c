"""Drawings of numbers in lines of text: a series, a histogram, a strip of densities, and an interval on a scale.

They are made of block elements, or of ASCII where a stream cannot encode these.
"""

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import IO

import numpy as np

from benchmarker.formatting import count, si
from benchmarker.records.record import Record
from benchmarker.records.step_times import step_times

SPAN = 0.2
"""Least range of a series from its lowest to its highest mark, as a share of the lowest value: noise is flat."""
FENCE = 3.0
"""Values that are further above the upper quartile than so many interquartile ranges are counted, and not drawn.

Source: Tukey, Exploratory Data Analysis (1977), section 2D: what is "far out".
"""
FAR = 0.05
"""Largest share of values that are not drawn; if more are far up, they are no stragglers, and all are drawn."""
SCALES_APART = 2.0
"""A strip's scale is logarithmic if the slowest trial's median is more than so many times the fastest one's."""
STRIP = 24
"""Characters of a strip."""
ROWS = 5
"""Lines of a histogram above its axis."""
WIDEST = 72
"""Most columns of a histogram."""


@dataclass(frozen=True, slots=True)
class Marks:
    """What drawings are made of: eight heights from the lowest, and the parts of axes and intervals."""

    heights: str
    none: str
    line: str
    axis: str
    corner: str
    median: str
    begin: str
    end: str
    bound: str
    one: str
    point: str


BLOCKS = Marks("▁▂▃▄▅▆▇█", "·", "─", "│", "└", "┴", "├", "┤", "┊", "│", "●")
ASCII = Marks("_,:-=+*#", ".", "-", "|", "+", "^", "[", "]", ":", "|", "o")


def marks_of(stream: IO[str]) -> Marks:
    """Return the marks that a stream can encode."""
    try:
        "".join(astuple(BLOCKS)).encode(getattr(stream, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return BLOCKS


def series(values: Sequence[float] | np.ndarray, width: int, marks: Marks) -> str:
    """Return values above 0 in order as a line of at most `width` heights; of more values, each is the mean of some.

    The lowest height is the smallest value, the highest is the largest, or SPAN above the smallest if that is more.
    """
    if not len(values):
        return ""
    means = np.array([group.mean() for group in np.array_split(np.asarray(values), min(width, len(values)))])
    low = float(means.min())
    shares = (means - low) / max(float(means.max()) - low, SPAN * low)
    return "".join(_height(float(share), marks) for share in shares)


def _height(share: float, marks: Marks) -> str:
    return marks.heights[min(len(marks.heights) - 1, int(share * len(marks.heights)))]


def histogram(times_s: np.ndarray, width: int, marks: Marks) -> list[str]:
    """Return lines of at most `width` columns with a histogram of the step times, s, of blocks.

    Blocks far above the others (FENCE, FAR) are counted, and not drawn.
    """
    low, high = _range(times_s)
    drawn = times_s[times_s <= high]
    label = len(str(len(drawn)))
    columns = max(8, min(width, WIDEST) - label - 2)
    numbers, _ = np.histogram(drawn, min(columns, _bins(drawn)), (low, high))
    each = columns // len(numbers)
    most = int(numbers.max())
    low_text, high_text = _ends(low, high)
    median = float(np.median(times_s))
    lines = [f"{count(len(times_s), 'block')} by step time"]
    for row in range(ROWS, 0, -1):
        bars = "".join(_cell(number / most * ROWS - (row - 1), marks) * each for number in numbers)
        scale = str(most) if row == ROWS else ""
        lines.append(f"{scale:>{label}} {marks.axis}{bars}".rstrip())
    at = 0 if high == low else min(len(numbers) * each - 1, int((median - low) / (high - low) * len(numbers) * each))
    axis = marks.line * at + marks.median + marks.line * (len(numbers) * each - at - 1)
    lines.append(f"{'0':>{label}} {marks.corner}{axis}")
    lines.append(_below(low_text, f"median {si(median, 's')}", high_text, label + 2, len(numbers) * each, at))
    if far := len(times_s) - len(drawn):
        lines.append(f"and {far} of up to {si(float(times_s.max()), 's')}, not drawn")
    return lines


def _bins(values: np.ndarray) -> int:
    """Return how many bins suit n values: the larger number of Sturges' rule and of Freedman and Diaconis'.

    Of a narrow middle and wide tails the latter would make millions; there are at most 2√n, as in NumPy 2.4's "auto".
    Sources: Sturges, The choice of a class interval (1926); Freedman and Diaconis, On the histogram as a density
    estimator: L2 theory (1981).
    """
    first, third = np.percentile(values, (25, 75))
    width = 2 * (third - first) / len(values) ** (1 / 3)
    by_width = min(2 * math.sqrt(len(values)), np.ptp(values) / width) if width > 0 else 0
    return max(math.ceil(math.log2(len(values)) + 1), math.ceil(by_width))


def _cell(height: float, marks: Marks) -> str:
    """Return what a bar is in a row that it fills to this share: nothing from 0 down, all of it from 1 up."""
    full = len(marks.heights)
    return " " if height <= 0 else marks.heights[min(full, math.ceil(height * full)) - 1]


def _below(low: str, median: str, high: str, indent: int, width: int, at: int) -> str:
    """Return the values below an axis: those of its ends, and that of the median below it as far as there is room."""
    free = width - len(low) - len(high) - len(median)
    if low == high:
        return " " * indent + low
    if free < 2:
        return " " * indent + low + high.rjust(width - len(low))
    start = min(max(at - len(median) // 2, len(low) + 1), width - len(high) - len(median) - 1)
    line = low + " " * (start - len(low)) + median
    return " " * indent + line + high.rjust(width - len(line))


def _range(times_s: np.ndarray) -> tuple[float, float]:
    """Return the smallest value, and the largest that is not far above the others."""
    first, third = np.percentile(times_s, (25, 75))
    near = times_s[times_s <= third + FENCE * (third - first)]
    return float(times_s.min()), float((near if len(near) >= (1 - FAR) * len(times_s) else times_s).max())


def _ends(low: float, high: float) -> tuple[str, str]:
    """Return the values at the ends of a scale, s, with as many digits as tell them apart."""
    for digits in (3, 4, 6):
        if (texts := (si(low, "s", digits), si(high, "s", digits)))[0] != texts[1]:
            break
    return texts


def strips(records: Sequence[Record], marks: Marks) -> tuple[str, list[str]]:
    """Return what the scale of all is, in words, and the blocks of each record as a strip on it, empty without blocks.

    A height is the share of the blocks in that part of the scale, of the most in any part. The scale is logarithmic if
    trials differ much (SCALES_APART); otherwise its last part has all blocks that are far above the others (FENCE).
    """
    times = [step_times(record) if record.blocks else np.array([]) for record in records]
    every = np.concatenate(times) if times else np.array([])
    if not len(every):
        return "", [""] * len(records)
    medians = [float(np.median(each)) for each in times if len(each)]
    is_log = max(medians) > SCALES_APART * min(medians)
    low, high = (float(every.min()), float(every.max())) if is_log else _range(every)
    words = "blocks from {} to {}".format(*_ends(low, high))
    words += ", log scale" if is_log else " and more" if float(every.max()) > high else ""
    form = np.log if is_log else np.asarray
    ends = (float(form(low)), float(form(high)))
    return words, [_strip(form(np.minimum(each, high)), ends, marks) if len(each) else "" for each in times]


def _strip(values: np.ndarray, ends: tuple[float, float], marks: Marks) -> str:
    numbers, _ = np.histogram(values, STRIP, ends)
    most = numbers.max()
    return "".join(marks.none if number == 0 else _height(number / most, marks) for number in numbers)


def interval(ratio: float, ends: tuple[float, float] | None, same: float, half: float, width: int, marks: Marks) -> str:
    """Return a ratio and its interval on a logarithmic scale from exp(-half) to exp(half), in `width` characters.

    1 is in the middle; `same` is the δ within which a ratio counts as no difference, whose bounds 1/(1 + δ) and 1 + δ
    are marked.
    """

    def at(value: float) -> int:
        share = (math.log(value) / half + 1) / 2
        return min(width - 1, max(0, round(share * (width - 1))))

    drawn = [" "] * width
    if ends:
        first, last = map(at, ends)
        drawn[first : last + 1] = marks.line * (last - first + 1)
        drawn[first], drawn[last] = marks.begin, marks.end
    for place, mark in ((at(1.0), marks.one), (at(1 / (1 + same)), marks.bound), (at(1 + same), marks.bound)):
        if drawn[place] in (" ", marks.line):
            drawn[place] = mark
    drawn[at(ratio)] = marks.point
    return "".join(drawn)
