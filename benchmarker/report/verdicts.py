"""The comparisons: each as a sentence, all in a figure, with the evidence for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarker.comparing import formatting
from benchmarker.comparing.formatting import Terms, details, measure, ratio, short
from benchmarker.comparing.results import METHODS
from benchmarker.report.page_model import Axis, Cell, Column, Figure, Listing, Points, Section, Table
from benchmarker.report.study import MOST_DRAWN, about

if TYPE_CHECKING:
    from benchmarker.comparing.results import Comparison, GeometricMean
    from benchmarker.report.study import Study

MOST_SENTENCES = 4
MOST_NOTES = 100
_SERIES = {"faster": 2, "better": 2, "slower": 1, "worse": 1, "same": 0, "undecided": 7}
"""Colours of verdicts."""
_CROSS = 5
"""The symbol of undecided comparisons; other verdicts have the symbol of their colour."""


def gain(each: Comparison) -> str:
    """Return the verdict on a contender with the better value: faster for times and rates, better otherwise."""
    return "faster" if each.unit == "s" or each.unit.endswith("/s") else "better"


def sentence(each: Comparison) -> str:
    """Return a comparison in words: the verdict, then the ratio with its interval and the number of trials."""
    where, a, b = about(each), short(each.baseline), short(each.contender)
    said = f"{formatting.sentence(each, Terms.of(each))}."
    if each.ratio is not None:
        figure, _, interval = ratio(each).partition(" ")
        evidence = [f"{100 * each.level:.3g}% interval {interval}" if each.low is not None else "no interval"]
        evidence.append(
            f"{each.rounds} rounds of trials" if each.rounds is not None else "{} and {} trials".format(*each.trials)
        )
        evidence += [] if each.p_adjusted is None else [f"p = {each.p_adjusted:.2g}"]
        said += f" The {measure(each.metric)} of {b} is {figure} times that of {a} ({', '.join(evidence)})."
    return f"{where}: {said}" if where else said


def mean_sentence(each: GeometricMean, terms: Terms) -> str:
    """Return a geometric mean in words."""
    return (
        f"Over {each.cases} cases: {formatting.sentence(each, terms)}. The geometric mean of the ratios of the "
        f"{measure(terms.metric)} is {ratio(each)} ({each.method})."
    )


def verdicts(study: Study) -> Section:
    """Return the comparisons as sentences, a figure of the ratios, and a table with the evidence for each verdict."""
    family = study.family
    if family is None:
        return Section("verdicts", "Verdicts", (f"Nothing is compared: {study.unjudged}.",))
    several, first = family.comparisons, family.comparisons[0]
    lead = [mean_sentence(each, Terms.of(first)) for each in family.geometric_means]
    few = len(several) <= MOST_SENTENCES
    if few:
        lead += [sentence(each) for each in several]
    else:
        counts = Counter(each.verdict for each in several)
        lead.append(
            f"Of {len(several)} comparisons: {', '.join(f'{count} {word}' for word, count in counts.most_common())}."
        )
    rows: list[tuple[Cell, ...]] = [
        (
            sentence(each),
            each.verdict,
            short(each.baseline),
            short(each.contender),
            each.baseline_value,
            each.contender_value,
            each.ratio,
            each.low,
            each.high,
            each.p_adjusted,
            *each.trials,
        )
        for each in several
    ]
    unit = first.unit
    columns = (
        Column("comparison"),
        Column("verdict"),
        Column("baseline"),
        Column("contender"),
        Column("baseline value", unit, numeric=True),
        Column("contender value", unit, numeric=True),
        Column("ratio", numeric=True),
        Column("interval from", numeric=True),
        Column("interval to", numeric=True),
        Column("p adjusted", numeric=True),
        Column("baseline trials", numeric=True),
        Column("contender trials", numeric=True),
    )
    listing = Listing("Evidence for each verdict", _evidence(study), folded=True)
    table = Table(columns, tuple(rows))
    return Section(
        "verdicts", "Verdicts", tuple(lead), tuple(filter(None, (_ratios(study, table), _notes(study), listing)))
    )


def _ratios(study: Study, data: Table) -> Figure | None:
    """Return the figure of the ratios with their intervals, the line of no change, and the band of no difference."""
    assert study.family is not None
    shown = [each for each in study.family.comparisons if each.ratio is not None]
    if not shown:
        return None
    some, first = shown[:MOST_DRAWN], shown[0]
    names = [about(each, each.contender) for each in some]
    kinds = list(dict.fromkeys(each.verdict for each in some))
    marks = []
    for kind in kinds:
        at = [index for index, each in enumerate(some) if each.verdict == kind]
        these = [some[index] for index in at]
        marks.append(
            Points(
                kind,
                _SERIES[kind],
                tuple(each.ratio or 0.0 for each in these),
                tuple(map(float, at)),
                tuple(f"{names[index]}: {kind}, {ratio(some[index])}" for index in at),
                tuple(each.low for each in these),
                tuple(each.high for each in these),
                symbol=_CROSS if kind == "undecided" else None,
            )
        )
    better = f"{'Left' if first.better == 'lower' else 'Right'} of 1 means that the contender is {gain(first)}"
    crosses = " Crosses are undecided." if "undecided" in kinds else ""
    left = "" if len(some) == len(shown) else f"Only {len(some)} of {len(shown)} are drawn; the data table has all."
    return Figure(
        "ratios",
        f"Ratio of the {measure(first.metric)}, contender over baseline",
        f"Each mark is a ratio, with its {100 * first.level:.3g}% interval as a line. {better}.{crosses} "
        f"The shaded band is ±{100 * first.delta:.3g}%, which counts as no difference.",
        Axis("ratio, contender over baseline", "", log=True),
        tuple(marks),
        data,
        rows=tuple(names),
        lines=(1.0,),
        band=(1 / (1 + first.delta), 1 + first.delta),
        left_out=left,
    )


def _notes(study: Study) -> Listing | None:
    """Return the table of notes, each once with the comparisons it applies to, and what could not be compared."""
    family = study.family
    assert family is not None
    found: dict[str, list[str]] = {}
    for each in family.comparisons:
        for note in each.notes:
            name = about(each, each.contender)
            found.setdefault(note, []).append(name)
    rows: list[tuple[Cell, ...]] = [(note, _where(names, len(family.comparisons))) for note, names in found.items()]
    rows += [(note, "all") for note in family.notes]
    rows += [("not compared: it has no counterpart", name) for name in family.unmatched]
    if not rows:
        return None
    more = max(0, len(rows) - MOST_NOTES)
    rest: tuple[Cell, ...] | None = (f"and {more} more", "") if more else None
    table = Table((Column("note"), Column("applies to")), tuple(rows[:MOST_NOTES]), rest)
    return Listing("Notes on the verdicts", table, searched=len(rows) > 10)


def _where(names: Sequence[str], of: int) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return "all" if len(names) == of and of > 1 else ", ".join(names[:3]) + more


def _evidence(study: Study) -> Table:
    assert study.family is not None
    rows = [(about(each, each.contender), details(each), METHODS[each.method]) for each in study.family.comparisons]
    return Table((Column("comparison"), Column("evidence"), Column("method")), tuple(rows))
