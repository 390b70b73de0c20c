"""The comparisons: all in a figure and in a table, with the evidence for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from benchmarker.comparing.formatting import (
    FROM_PAIRS,
    Terms,
    better_and_worse,
    details,
    measure,
    over_cases,
    percent,
    ratio,
    sentence,
    short,
    tally,
    verdict,
)
from benchmarker.comparing.results import METHODS, Comparison, GeometricMean
from benchmarker.comparing.samples import Tested
from benchmarker.formatting import count, some
from benchmarker.page.page_model import (
    BELOW,
    Axis,
    Band,
    Dot,
    Figure,
    Listing,
    Mark,
    Points,
    Ridge,
    Section,
    digits,
    drawn,
    searchable,
    table_of,
)
from benchmarker.page.study import MOST_DRAWN, Study
from benchmarker.stats.shift import Shift
from benchmarker.tables.table import P_VALUE, RATIO, Cell, Column, Table, number

MOST_NOTES = 100
MOST_PICTURED = 8
"""Comparisons that the first screen shows; of more, it has the geometric means."""
CURVE = 101
"""Ratios at which a curve of p-values is drawn."""
ALMOST_ALL = 0.998
"""Confidence level of the interval that such a curve spans."""
SCATTER = 1e-6
"""Least width of the logarithms of that interval that is drawn; less is the rounding of equal values."""
_SYMBOLS = {"faster": 3, "better": 3, "slower": 7, "worse": 7, "same": 1, "undecided": 5}
"""Symbols of verdicts: a triangle up or down, a square, a cross. Colours are those of the sides."""


def verdicts(study: Study) -> tuple[Section, Figure | None]:
    """Return the comparisons, all in a table with the evidence for each verdict, and the picture of the answer.

    That is the figure of the ratios if there are few, and otherwise that of their geometric means, if there are any.
    """
    family = study.family
    if family is None:
        return Section("verdicts", "Verdicts", (f"Nothing is compared: {study.unjudged}.",)), None
    first = family.comparisons[0]
    lead = [f"{count(len(family.comparisons), 'comparison')}: {tally(family.comparisons)}."]
    if len(family.comparisons) == 1:
        lead = [f"{sentence(first, Terms.of(first))}."]
    if not (study.scores and any(each.metric == first.metric for each in study.scores.rankings)):
        lead = [
            f"{over_cases(each, Terms.of(first))}; B/A {ratio(each)}, {each.method}." for each in family.geometric_means
        ] + lead
    judged = by_case(study)
    ratios = _ratios(study, judged)
    picture = ratios if len(judged) <= MOST_PICTURED else _means(study)
    own = None if ratios is picture else ratios
    parts = (own, _listing(study, judged), _notes(study, judged), _evidence(judged))
    return Section("verdicts", "Verdicts", tuple(lead), tuple(filter(None, parts))), picture


class Judged(NamedTuple):
    """A comparison, with the name of its case and what was tested."""

    case: str
    comparison: Comparison
    tested: Tested


def by_case(study: Study) -> list[Judged]:
    """Return the comparisons; those of a case are next to each other."""
    assert study.family
    found: dict[str, list[Judged]] = {}
    for match, each in zip(study.matches, study.family.comparisons, strict=True):
        judged = Judged(study.case_of(match), each, Tested(match, study.rules, study.derive))
        found.setdefault(judged.case, []).append(judged)
    return [each for several in found.values() for each in several]


def _name(case: str, each: Comparison) -> str:
    return f"{case} {short(each.contender)}"


def _table(judged: Sequence[Judged], *more: tuple[Column, Callable[[Judged], Cell]]) -> Table:
    """Return every comparison with both values, their ratio and its interval."""
    several = [each.comparison for each in judged]
    first = several[0]
    pairs = {(short(each.baseline), short(each.contender)) for each in several}
    one, one_baseline = len(pairs) == 1, len({a for a, _ in pairs}) == 1
    a, b = next(iter(pairs)) if one_baseline else ("A", "B")
    return table_of(
        judged,
        (Column("case"), lambda row: row[0]),
        *(() if one_baseline else ((Column("baseline A"), lambda row: short(row[1].baseline)),)),
        *(() if one else ((Column("contender B"), lambda row: short(row[1].contender)),)),
        (Column("verdict"), lambda row: verdict(row[1])),
        (number(a, first.unit), lambda row: row[1].baseline_value),
        (number(b if one else "B", first.unit), lambda row: row[1].contender_value),
        (number("B/A", RATIO), lambda row: row[1].ratio),
        (number("from", RATIO), lambda row: row[1].low),
        (number("to", RATIO), lambda row: row[1].high),
        (number("p", P_VALUE), lambda row: row[1].p_adjusted),
        (Column("trials"), lambda row: _trials(row[1])),
        *more,
    )


def _trials(each: Comparison) -> str:
    return f"{each.rounds} rounds" if each.rounds is not None else "{} and {}".format(*each.trials)


def _listing(study: Study, judged: Sequence[Judged]) -> Listing:
    assert study.family
    first = study.family.comparisons[0]
    better = (
        f"{'below' if first.better == 'lower' else 'above'} 1, the contender (B) is {better_and_worse(first.unit)[0]}"
    )
    is_adjusted = any(each.p_adjusted != each.p_value for each in study.family.comparisons)
    adjusted = "p is adjusted for all comparisons made together (Holm); " if is_adjusted else ""
    caption = (
        f"{measure(first.metric).capitalize()}, medians over trials, and the ratio B/A with its {percent(first.level)} "
        f"interval, from and to: {better}. The ratio {FROM_PAIRS}. {adjusted}δ is {percent(first.delta)}."
    )
    return searchable("Comparisons", _table(judged), caption)


def _ratios(study: Study, judged: Sequence[Judged]) -> Figure | None:
    """Return the figure of the ratios with their intervals, p-values and rounds."""
    shown = [each for each in judged if each.comparison.ratio is not None]
    if not shown:
        return None
    some, left = drawn(shown, MOST_DRAWN)
    contenders = {each.comparison.contender for each in shown}
    rows = [
        (each.case if len(contenders) == 1 else _name(each.case, each.comparison), each.comparison) for each in some
    ]
    marks = _evidence_marks(some, list(study.sides))
    paired = any(len(each.tested.values) for each in judged)
    known = any(each.comparison.low is not None for each in some)
    rounds = [(Column("ratios of the rounds"), lambda each: " ".join(map(str, _rounds(each.tested))))] * paired
    more = (
        " A curve is the p-value that the verdict's test, before any correction, gives to each ratio: 1 at the estimate"
        f"{f', {percent(1 - some[0].comparison.level)} at the ends of the interval' * known}."
        * any(isinstance(mark, Ridge) for mark in marks)
        + " Small marks below a row are the ratios of its rounds." * paired
    )
    return _figure(study, "ratios", rows, _table(judged, *rounds), marks, more, left)


def _means(study: Study) -> Figure | None:
    """Return the figure of the geometric means of the ratios; None if there is none."""
    assert study.family
    means = study.family.geometric_means[:MOST_DRAWN]
    rows = [(f"{short(each.contender)}, mean of {count(each.cases, 'case')}", each) for each in means]
    data = table_of(
        rows,
        (Column("mean"), lambda row: row[0]),
        (Column("verdict"), lambda row: verdict(row[1])),
        (number("B/A", RATIO), lambda row: row[1].ratio),
        (number("from", RATIO), lambda row: row[1].low),
        (number("to", RATIO), lambda row: row[1].high),
        (number("p", P_VALUE), lambda row: row[1].p_adjusted),
    )
    return _figure(study, "mean-ratios", rows, data) if means else None


def _figure(
    study: Study,
    key: str,
    rows: Sequence[tuple[str, Comparison | GeometricMean]],
    data: Table,
    marks: Sequence[Mark] = (),
    more: str = "",
    left: str = "",
) -> Figure:
    """Return a figure of ratios with their intervals, the line of no change, and the band of no difference."""
    assert study.family
    first, order = study.family.comparisons[0], list(study.sides)
    found: dict[tuple[str, str], list[Dot]] = {}
    for row, (name, each) in enumerate(rows):
        text = f"{name}: {verdict(each)}, {ratio(each)}"
        dot = (each.ratio or 0.0, float(row), each.low, each.high, text)
        found.setdefault((short(each.contender), each.verdict), []).append(dot)
    ratios = [
        replace(
            Points.of(f"{contender}: {word}", order.index(contender), dots, "dots", _SYMBOLS[word]),
            labels=(word,) * len(dots),
            listed=False,
        )
        for (contender, word), dots in found.items()
    ]
    known = any(each.low is not None for _, each in rows)
    interval = (
        f", with its {percent(rows[0][1].level)} interval as a line" if known else "; too few trials for intervals"
    )
    pairs = {(short(each.contender), short(each.baseline)) for _, each in rows}
    contender, baseline = pairs.pop() if len(pairs) == 1 else ("contender", "baseline")
    the = "the " * (contender == "contender")
    side, gain = "Left" if first.better == "lower" else "Right", better_and_worse(first.unit)[0]
    return Figure(
        key,
        f"Ratio of the {measure(first.metric)}, {contender} over {baseline}",
        f"Each mark is a ratio{interval}. {side} of 1 means that {the}{contender} is {gain}. The shaded band, "
        f"±{percent(first.delta)}, counts as no difference.{more}",
        Axis(f"ratio, {contender} over {baseline}", "", log=True),
        (*marks, *ratios),
        data,
        rows=tuple(name for name, _ in rows),
        lines=(1.0,),
        bands=(Band(1 / (1 + first.delta), 1 + first.delta, f"±{percent(first.delta)}"),),
        left_out=left,
    )


def _evidence_marks(shown: Sequence[Judged], order: Sequence[str]) -> list[Mark]:
    """Return the p-values of the ratios of each comparison in its row, and below it the rounds, if it has any."""
    marks: list[Mark] = []
    for row, (_, each, tested) in enumerate(shown):
        series = order.index(short(each.contender))
        if curve := p_values(tested):
            marks.append(Ridge("p-value", series, row, *curve))
        if rounds := _rounds(tested):
            dots = Points("rounds", series, rounds, (row + BELOW,) * len(rounds), look="small dots", listed=False)
            marks.append(dots)
    return marks


def _rounds(tested: Tested) -> tuple[float, ...]:
    """Return the paired ratios, if the sides are paired."""
    return digits(np.exp(tested.values).tolist(), 6)


def p_values(tested: Tested) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Return ratios, evenly spaced by their logarithm, and the two-sided p-value that the test gives to each.

    This is the p-value function, or compatibility curve (Poole, Am. J. Public Health 77, 1987), whose widths are the
    intervals of every level. None without a test, or if the values do not scatter.
    """
    test = tested.test
    ends = test and (test.interval(ALMOST_ALL) or (isinstance(test, Shift) and (test.points[0], test.points[-1])))
    if not test or not ends or ends[1] - ends[0] < SCATTER:
        return None
    more = (ends[1] - ends[0]) / 20
    logs = np.linspace(ends[0] - more, ends[1] + more, CURVE)
    return digits(np.exp(logs).tolist(), 6), digits([test.p_against(float(log)) for log in logs], 4)


def _notes(study: Study, judged: Sequence[Judged]) -> Listing | None:
    """Return the table of notes, each once with the comparisons it applies to, and what could not be compared."""
    family = study.family
    assert family
    found: dict[str, list[str]] = {}
    for case, each, _ in judged:
        for note in each.notes:
            found.setdefault(note, []).append(_name(case, each))
    rows: list[tuple[Cell, ...]] = [(note, _where(names, len(family.comparisons))) for note, names in found.items()]
    rows += [(note, "all") for note in family.notes]
    rows += [("not compared: it has no counterpart", name) for name in family.unmatched]
    if not rows:
        return None
    more = max(0, len(rows) - MOST_NOTES)
    rest: tuple[Cell, ...] | None = (f"and {more} more", "") if more else None
    table = Table((Column("note", prose=True), Column("applies to")), tuple(rows[:MOST_NOTES]), rest)
    return searchable("Notes on the verdicts", table)


def _where(names: Sequence[str], of: int) -> str:
    return "all" if len(names) == of and of > 1 else some(names, 3)


def _evidence(judged: Sequence[Judged]) -> Listing:
    rows = [(_name(case, each), details(each), METHODS[each.method]) for case, each, _ in judged]
    columns = (Column("comparison"), Column("evidence", prose=True), Column("method", prose=True))
    return Listing("Evidence for each verdict", Table(columns, tuple(rows)), folded=True)
