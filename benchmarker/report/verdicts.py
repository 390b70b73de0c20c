"""The comparisons: each in a sentence, all in a figure, and what stands behind them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarker.comparing.formatting import line, ratio
from benchmarker.comparing.results import METHODS
from benchmarker.report.page_model import Axis, Cell, Column, Figure, Listing, Points, Section, Table
from benchmarker.report.study import MOST_DRAWN, about, named, short, telling

if TYPE_CHECKING:
    from benchmarker.comparing.results import Comparison, GeometricMean
    from benchmarker.report.study import Study

MOST_SENTENCES = 4
MOST_NOTES = 100
_SERIES = {"faster": 2, "better": 2, "slower": 1, "worse": 1, "same": 0, "undecided": 7}
"""Colours of verdicts."""
_CROSS = 5
"""The symbol of what is undecided; those of the others go with their colours."""


def measure(metric: str) -> str:
    """A metric in words: `step time (median)`, `samples/s`."""
    if metric.startswith("step_time_"):
        return f"step time ({metric.removeprefix('step_time_').removesuffix('_s')})"
    return metric.replace("_per_", "/").replace("_", " ")


def gain(each: Comparison) -> str:
    """What a contender is whose value is on the better side: of times and rates it is speed that is judged."""
    return "faster" if each.unit == "s" or each.unit.endswith("/s") else "better"


def sentence(each: Comparison) -> str:
    """A comparison as a sentence: the verdict, the ratio with its interval, and how many trials say so."""
    where, a, b = about(each.case), short(each.baseline), short(each.contender)
    if each.ratio is None:
        said = f"{b} and {a} cannot be compared: a side has no value"
    else:
        said = {
            "same": f"{b} and {a} are the same within {100 * each.delta:.3g}%",
            "undecided": f"Whether {b} differs from {a} cannot be said",
        }.get(each.verdict, f"{b} is {each.verdict} than {a}")
        interval = f", with its {100 * each.level:.3g}% interval" if each.low is not None else ""
        said += f": its {measure(each.metric)} is {ratio(each)} times that of {a}{interval}"
    n = f"{each.rounds} rounds of trials" if each.rounds is not None else "{} and {} trials".format(*each.trials)
    p = "" if each.p_adjusted is None else f", p {each.p_adjusted:.2g}"
    return f"{where}: {said} ({n}{p})." if where else f"{said} ({n}{p})."


def mean_sentence(each: GeometricMean, metric: str) -> str:
    """A geometric mean as a sentence."""
    word = {"same": "the same", "undecided": "undecided"}.get(each.verdict, each.verdict)
    return (
        f"Over {each.cases} cases, {short(each.contender)} against {short(each.baseline)}: {word}; "
        f"the geometric mean of the ratios of the {measure(metric)} is {ratio(each)} ({each.method})."
    )


def verdicts(study: Study) -> Section:
    """The comparisons: sentences, a figure of the ratios, the table with what stands behind each verdict."""
    family = study.family
    if family is None:
        return Section("verdicts", "Verdicts", (f"Nothing is compared: {study.unjudged}.",))
    several, first = family.comparisons, family.comparisons[0]
    lead = [mean_sentence(each, first.metric) for each in family.geometric_means]
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
    listing = Listing("What stands behind each verdict", _evidence(study), folded=True)
    table = Table(columns, tuple(rows))
    return Section(
        "verdicts", "Verdicts", tuple(lead), tuple(filter(None, (_ratios(study, table), _notes(study), listing)))
    )


def _ratios(study: Study, data: Table) -> Figure | None:
    """Ratios with their intervals, beside the line of no change and what counts as none."""
    assert study.family is not None
    shown = [each for each in study.family.comparisons if each.ratio is not None]
    if not shown:
        return None
    some, first = shown[:MOST_DRAWN], shown[0]
    factors = telling([each.case for each in shown])
    names = [f"{named(each.case, factors)} {short(each.contender)}".strip() for each in some]
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
    better = f"{'left' if first.better == 'lower' else 'right'} of 1 is {gain(first)}"
    crosses = "; crosses are undecided" if "undecided" in kinds else ""
    left = "" if len(some) == len(shown) else f"The first {len(some)} of {len(shown)} are drawn; the data have all."
    return Figure(
        "ratios",
        f"Ratio of the {measure(first.metric)}, contender over baseline",
        f"A mark is the ratio, its line the {100 * first.level:.3g}% interval; {better}{crosses}. "
        f"The shaded stretch is ±{100 * first.delta:.3g}%, which counts as no difference.",
        Axis("ratio, contender over baseline", "", log=True),
        tuple(marks),
        data,
        rows=tuple(names),
        lines=(1.0,),
        band=(1 / (1 + first.delta), 1 + first.delta),
        left_out=left,
    )


def _notes(study: Study) -> Listing | None:
    """What makes verdicts doubtful, each note once with what it is about; and what could not be compared."""
    family = study.family
    assert family is not None
    found: dict[str, list[str]] = {}
    for each in family.comparisons:
        for note in each.notes:
            name = about(each.case, each.contender)
            found.setdefault(note, []).append(name)
    rows: list[tuple[Cell, ...]] = [(note, _where(names, len(family.comparisons))) for note, names in found.items()]
    rows += [(note, "all") for note in family.notes]
    rows += [("not compared, for it has no counterpart", name) for name in family.unmatched]
    if not rows:
        return None
    more = max(0, len(rows) - MOST_NOTES)
    rest: tuple[Cell, ...] | None = (f"and {more} more", "") if more else None
    table = Table((Column("note"), Column("about")), tuple(rows[:MOST_NOTES]), rest)
    return Listing("Notes: what to bear in mind", table, searched=len(rows) > 10)


def _where(names: Sequence[str], of: int) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return "all" if len(names) == of and of > 1 else ", ".join(names[:3]) + more


def _evidence(study: Study) -> Table:
    assert study.family is not None
    rows = [(about(each.case, each.contender), line(each), METHODS[each.method]) for each in study.family.comparisons]
    return Table((Column("comparison"), Column("evidence"), Column("method")), tuple(rows))
