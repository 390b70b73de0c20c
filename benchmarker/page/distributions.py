"""How step times are distributed on the sides of a compared case: densities, medians of trials, quantiles."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from benchmarker.formatting import si
from benchmarker.page.page_model import BELOW, Axis, Figure, Mark, Points, Ridge, digits, is_wide
from benchmarker.page.study import Group, Study
from benchmarker.records.step_times import step_times
from benchmarker.tables.table import Column, Table, number

Floats = npt.NDArray[np.float64]

MOST_CASES = 6
MOST_SIDES = 6
FEWEST = 20
"""Blocks that each side must have."""
MOST_BLOCKS = 5000
"""Blocks of which a density is made; of more, as many quantiles stand for them."""
GRID = 101
DIGITS = 6
EDGE = 0.5
"""Percentiles between which the axis of densities lies, from this one to 100 less it."""
MARGIN = 0.05
"""What is added to the axis on both sides, as a share of its length by the logarithm."""
LABELLED = (50, 90, 99)
EQUAL = 7


def distributions(study: Study) -> tuple[list[Figure], str]:
    """Return the figures of the compared cases, and the note on those that are not drawn."""
    compared = []
    for case, groups in study.cases.items() if study.family else ():
        sides = [(group, [step_times(record) for record in group.ok if record.blocks]) for group in groups]
        long = [each for each in sides if sum(map(len, each[1])) >= FEWEST]
        compared += [(case, long[:MOST_SIDES])] if len(long) > 1 else []
    figures = []
    for at, (case, sides) in enumerate(compared[:MOST_CASES]):
        of = f": {case}" if len(compared) > 1 else ""
        figures += [
            _densities(f"density-{at}", f"Distribution of step times{of}", sides),
            _quantiles(f"quantiles-{at}", f"Quantiles of step times, against {sides[0][0].side}{of}", sides),
        ]
    more = f"Distributions are drawn for the first {MOST_CASES} of {len(compared)} cases."
    return figures, more * (len(compared) > MOST_CASES)


def _densities(key: str, title: str, sides: Sequence[tuple[Group, list[Floats]]]) -> Figure:
    """Return a density of each side, with the medians of its trials below it."""
    blocks = [np.concatenate(trials) for _, trials in sides]
    medians = [digits([float(np.median(each)) for each in trials], DIGITS) for _, trials in sides]
    ends = np.percentile(np.concatenate(blocks), [EDGE, 100 - EDGE])
    low, high = (float(pick([*ends, *(value for of in medians for value in of)])) for pick in (min, max))
    low, high = low / (high / low) ** MARGIN, high * (high / low) ** MARGIN
    log = is_wide([low, high])
    curves = [density(each, low, high, log=log) for each in blocks]
    highest = max((float(heights.max()) for _, heights in filter(None, curves)), default=0.0)
    marks: list[Mark] = []
    for row, ((group, _), curve, of) in enumerate(zip(sides, curves, medians, strict=True)):
        if curve:
            x, heights = curve
            marks.append(Ridge(group.side, group.series, row, digits(x, DIGITS), digits(heights / highest, 4)))
        marks.append(Points(group.side, group.series, of, (row + BELOW,) * len(of), look="small dots"))
    table = Table.of_columns(
        [
            (Column("side"), [group.side for group, trials in sides for _ in trials]),
            (Column("trial id"), [record.trial_id for group, _ in sides for record in group.ok if record.blocks]),
            (number("blocks"), [len(each) for _, trials in sides for each in trials]),
            (number("median_s", "s"), [value for of in medians for value in of]),
        ]
    )
    caption = (
        "The density of all timed blocks of each side, with equal areas, and below it the median of each trial. Kernels"
        " are Gaussian, as wide as Silverman's rule says"
        + (", on the logarithmic axis" if log else "")
        + ". Blocks of one process are not independent, so verdicts are based on trials."
    )
    axis = Axis("step time", "s", log="always" if log else False)
    return Figure(key, title, caption, axis, tuple(marks), table, rows=tuple(group.side for group, _ in sides))


def density(values: Floats, low: float, high: float, *, log: bool) -> tuple[Floats, Floats] | None:
    """Return values evenly spaced from `low` to `high`, and the density there: by the logarithm, with `log`.

    It is a Gaussian kernel estimate whose bandwidth is 0.9 min(s, IQR / 1.34) n^(-1/5), s if the quartiles are equal
    (Silverman, Density Estimation for Statistics and Data Analysis, 1986, equation 3.31), and at least the distance of
    two of the values. None if all values are equal.
    """
    from scipy.stats import gaussian_kde  # takes half a second

    if len(values) > MOST_BLOCKS:
        values = np.quantile(values, (np.arange(MOST_BLOCKS) + 0.5) / MOST_BLOCKS)
    if log:
        values, low, high = np.log(values), np.log(low), np.log(high)
    if not values.min() < values.max() or not low < high:
        return None
    deviation = float(values.std(ddof=1))
    q1, q3 = np.percentile(values, [25, 75])
    spread = min(deviation, float(q3 - q1) / 1.34) or deviation
    x = np.linspace(low, high, GRID)
    bandwidth = max(0.9 * spread * len(values) ** -0.2, (high - low) / GRID)
    return np.exp(x) if log else x, gaussian_kde(values, bandwidth / deviation)(x)


def _quantiles(key: str, title: str, sides: Sequence[tuple[Group, list[Floats]]]) -> Figure:
    """Return the quantiles of each contender against those of the baseline, with the line on which they are equal."""
    shares = range(1, 100)
    found = [digits(np.percentile(np.concatenate(trials), list(shares)), DIGITS) for _, trials in sides]
    baseline = sides[0][0].side
    every = [value for of in found for value in of]
    ends = min(every), max(every)
    marks: list[Mark] = [Points("equal", EQUAL, ends, ends, look="line")]
    for (group, _), of in zip(sides[1:], found[1:], strict=True):
        texts = tuple(
            f"{share}% of blocks take at most {si(x, 's')} with {baseline}, {si(y, 's')} with {group.side}"
            for share, x, y in zip(shares, found[0], of, strict=True)
        )
        labels = tuple(f"{share}%" if share in LABELLED else "" for share in shares)
        marks.append(Points(group.side, group.series, found[0], of, texts, look="small dots", labels=labels))
    table = Table.of_columns(
        [
            (number("percentile", "%"), [share / 100 for share in shares]),
            *((number(group.side, "s"), list(of)) for (group, _), of in zip(sides, found, strict=True)),
        ]
    )
    caption = (
        "Each dot is a percentile of the timed blocks, from the 1st to the 99th: of the baseline to the right, of the "
        "contender up. Below the line the contender is faster. A tail that only one side has bends away from it."
    )
    x, y = (Axis(f"step time, {side}", "s", log=True) for side in (baseline, "contender"))
    return Figure(key, title, caption, x, tuple(marks), table, y)
