"""Scores as text."""

import string
from collections.abc import Iterator, Mapping, Sequence

from benchmarker.comparing.formatting import (
    FROM_PAIRS,
    few_runs,
    gist,
    percent,
    ratio,
    sentence,
    short,
    verdict,
    words_of,
)
from benchmarker.comparing.results import GeometricMean
from benchmarker.display.comparisons import COLOURS
from benchmarker.display.result import Part, Text
from benchmarker.formatting import part, si
from benchmarker.procurement.costs import Basis
from benchmarker.procurement.ranking import BETTER, WORSE, MetricRanking, in_words
from benchmarker.procurement.score import CaseScore, MetricScore, Score, Scores, coverage, terms_of
from benchmarker.records.factors import label, text
from benchmarker.tables.table import NOTHING, Column, Filled, Shown, Table, coloured, interval, number


def scores_output(
    scores: Scores, left_out: Sequence[str], *, wide: bool = False, verbose: bool = False
) -> Iterator[Part]:
    """Yield the verdicts, the sides, their scores or ranks, the cases, the inputs of the cost, and what is missing."""
    letters = {side.name: _letter(index) for index, side in enumerate(scores.sides)}
    if len(scores.scores) == 1:
        for index, each in enumerate(scores.scores[0].metrics):
            said = sentence(each.mean, terms_of(each)) if each.mean else "" if index else "no score"
            if said:
                colour = COLOURS[each.mean.verdict] if each.mean else "red"
                yield Text(f"{each.metric}, {coverage([each], scores)}: {said}", "  ", colour)
    means = [mean for ranking in scores.rankings for mean in ranking.pairs]
    unlike = [mean.execution for mean in means] if len(scores.scores) > 1 else []
    for doubt in dict.fromkeys([*unlike, *(few_runs(mean.method, mean.runs) for mean in means)]):
        if doubt:
            yield Text(doubt, "  ")
    for side in scores.sides:
        disturbed = f", {side.disturbed} disturbed" if side.disturbed else ""
        success = f"{part(side.ok, side.asked, 'trial')} succeeded ({percent(side.success)})"
        of = f"; suite {', '.join(map(str, side.suites))}" if side.suites else ""
        yield Text(f"{letters[side.name]}  {short(side.name)}: {success}{disturbed}{of}", "   ")
    yield ""
    if len(scores.scores) == 1:
        yield Text("score of the contender (B) over the baseline (A); above 1, the contender is better")
        yield from _pair_output(scores.scores[0], wide=wide)
    else:
        yield Text("scores over the baseline (A); above 1, a side is better than the baseline")
        for shared in dict.fromkeys(score.shared for score in scores.scores if score.shared):
            yield Text(shared)
        yield from _rankings_output(scores, letters, wide=wide)
    yield from _warnings_output(scores, letters)
    yield from _costs_output(scores)
    yield from _method_output(scores, verbose=verbose)
    for score in scores.scores:
        where = "" if len(scores.scores) == 1 else f" ({letters[score.contender.name]})"
        for note in dict.fromkeys(score.notes):
            yield Text(f"  note{where}: {short(note)}", "    ")
    yield from _missing_output(scores, letters, left_out)


def _letter(index: int) -> str:
    return string.ascii_uppercase[index] if index < 26 else str(index + 1)


def _pair_output(score: Score, *, wide: bool) -> Iterator[Part]:
    """Yield a line for each metric of two sides, and a line for each case: its weight, both values and their ratio."""
    means = [(each.mean, terms_of(each)) for each in score.metrics]
    verdicts = [
        Shown(mean.verdict, gist(mean, terms), COLOURS[mean.verdict]) if mean else NOTHING for mean, terms in means
    ]
    filled: list[Filled] = [
        (Column("metric"), [each.metric for each in score.metrics]),
        (Column("verdict", levels=("verdict on B",)), verdicts),
        *_scores([mean for mean, _ in means]),
        (Column("cases"), [Shown(each.scored, f"{each.scored} of {each.cases}") for each in score.metrics]),
    ]
    yield Table.of_columns(filled)
    yield ""
    shown = [each for each in score.metrics if each.mean]
    if not shown:
        return
    if score.shared:
        yield Text(score.shared)
    filled = []
    drop: list[str] = []
    for metric in shown:
        name, unit, cases = metric.metric.replace("_per_", "/"), _unit(metric), metric.by_case
        filled += [
            (number(f"{metric.metric} A", unit, f"{name} A"), [each.baseline_value for each in cases]),
            (number(f"{metric.metric} B", unit, f"{name} B"), [each.contender_value for each in cases]),
            (number(f"{metric.metric} score", heading=f"{name} score", form=".3f"), [each.ratio for each in cases]),
        ]
        drop = [f"{name} A", f"{name} B", *drop]
    yield _cases_table(shown[0].by_case, filled, drop, wide=wide)


def _scores(means: Sequence[GeometricMean | None]) -> list[Filled]:
    """Return the columns of a score and its interval."""
    scores = [Shown(mean.ratio, ratio(mean)) if mean else NOTHING for mean in means]
    return [(Column("score"), scores), *interval("score", [(mean.low, mean.high) if mean else None for mean in means])]


def _cases_table(
    cases: Sequence[CaseScore], columns: Sequence[Filled], drop: Sequence[str] = (), *, wide: bool
) -> Table:
    """Return a row for each case: its name if there are several, all its factors if `wide`, its weight, and columns."""
    about: list[Filled] = []
    if any(each.name for each in cases):
        about.append((Column("case"), [each.name for each in cases]))
    for name in dict.fromkeys(name for each in cases for name in each.case) if wide else ():
        values = [each.case.get(name) for each in cases]
        about.append((Column(name), [Shown(value, text(value)) for value in values]))
    weights = [each.weight for each in cases]
    filled = [*about, (number("weight", form="g"), weights), *columns]
    return Table.of_columns(filled, drop=[*(["weight"] if len(set(weights)) == 1 else []), *drop])


def _rankings_output(scores: Scores, letters: Mapping[str, str], *, wide: bool) -> Iterator[Part]:
    """Yield for each metric the sides by rank, ties, and the ratio of each side in each case."""
    shown = [ranking for ranking in scores.rankings if ranking.pairs]
    for ranking in shown:
        of_metric = [each for score in scores.scores for each in score.metrics if each.metric == ranking.metric]
        about = f"{ranking.metric}, {coverage(of_metric, scores)}"
        yield Text(f"{about}: {in_words(ranking, words_of(of_metric[0].unit))}", "  ")
        yield from _places_output(ranking, scores, letters, whole=ranking is shown[0])
        for mean in ranking.pairs:
            if mean.verdict not in BETTER + WORSE:
                yield Text(f"  {_over(mean, letters)} {ratio(mean)}, {verdict(mean)}", "    ")
        yield from _ratios_output(of_metric, letters, wide=wide)
        yield ""


def _places_output(
    ranking: MetricRanking, scores: Scores, letters: Mapping[str, str], *, whole: bool
) -> Iterator[Part]:
    """Yield the sides by rank; with `whole` also their success, cost and number of warnings."""
    sides = {side.name: side for side in scores.sides}
    costs = {basis.name: basis for basis in scores.costs}
    places = ranking.places
    of_sides = [sides[place.side] for place in places]
    means = [place.mean for place in places]
    (column, cells), *ends = _scores(means)
    cells = [
        Shown(1.0, "1 (baseline)") if side is scores.sides[0] and not mean else cell
        for side, mean, cell in zip(of_sides, means, cells, strict=True)
    ]
    filled: list[Filled] = [
        (number("rank"), [place.rank for place in places]),
        (Column("side"), [f"{letters[place.side]} {short(place.side)}" for place in places]),
        (column, cells),
        *ends,
        (Column("verdict"), [coloured(mean.verdict, COLOURS[mean.verdict]) if mean else NOTHING for mean in means]),
    ]
    if whole:
        filled.append((number("success", form=percent), [side.success for side in of_sides]))
        if costs:
            rates = number(f"{scores.currency}_per_h", heading=f"{scores.currency}/h", form=".4g")
            filled.append((rates, [costs[place.side].cost_per_hour for place in places]))
        warnings = [
            Shown(len(side.warnings), "provisional" if mean and mean.provisional else str(len(side.warnings) or "-"))
            for side, mean in zip(of_sides, means, strict=True)
        ]
        filled.append((Column("warnings"), warnings))
    headings = [column.heading for column, _ in filled if not column.only]
    yield Table.of_columns(filled, drop=headings[4:], ordered=True)


def _ratios_output(metrics: Sequence[MetricScore], letters: Mapping[str, str], *, wide: bool) -> Iterator[Part]:
    """Yield the baseline's value of each case, and the ratio of each other side to it."""
    ratios = [{tuple(case.case.items()): case for case in metric.by_case} for metric in metrics]
    cases = {key: case for own in ratios for key, case in own.items()}
    values = [case.baseline_value for case in cases.values()]
    filled: list[Filled] = [(number(f"{metrics[0].metric} A", _unit(metrics[0]), "A"), values)]
    for letter, own in zip(list(letters.values())[1:], ratios, strict=True):
        of_cases = [own[key].ratio if key in own else None for key in cases]
        filled.append((number(f"{letter}/A", heading=f"{letter}/A", form=".3f"), of_cases))
    yield _cases_table(list(cases.values()), filled, ["A"], wide=wide)


def _warnings_output(scores: Scores, letters: Mapping[str, str]) -> Iterator[Part]:
    """Yield what makes a side, or the verdict on two of them, doubtful."""
    for side in scores.sides:
        for warning in side.warnings.values():
            yield Text(f"  warning ({letters[side.name]}): {warning}", "    ")
    about: dict[str, dict[str, None]] = {}
    for mean in (mean for ranking in scores.rankings for mean in ranking.pairs):
        for note in mean.notes:
            about.setdefault(note, {})[_over(mean, letters)] = None
    for note, pairs in about.items():
        yield Text(f"  warning ({', '.join(pairs)}): {short(note)}", "    ")


def _over(mean: GeometricMean, letters: Mapping[str, str]) -> str:
    return f"{letters[mean.contender]}/{letters[mean.baseline]}"


def _unit(metric: MetricScore) -> str:
    """Return the unit of a metric; work per second, joule or cost is a plain number."""
    return "1/s" if metric.unit.startswith("1/") else metric.unit


def _costs_output(scores: Scores) -> Iterator[Part]:
    """Yield the inputs of the cost of each side."""
    for index, basis in enumerate(scores.costs):
        yield Text(f"{_letter(index)}  {_cost(basis, scores.currency or '')}", "   ")
    if scores.costs:
        yield Text(
            "  cost per second = price / (lifetime x 365 d x utilisation) + power x PUE x electricity price; "
            "power is that of the trial, or else that of the cost file",
            "    ",
        )


def _cost(basis: Basis, currency: str) -> str:
    inputs, power, rate = basis.inputs, "no power", "no cost"
    if basis.used_power_W is not None and basis.cost_per_hour is not None:
        if not basis.measured:
            source = "from the cost file, not measured"
        elif basis.measured == basis.trials:
            source = "measured"
        else:
            source = f"measured in {part(basis.measured, basis.trials, 'trial')}"
            source += ", from the cost file in the others" if inputs.power_W else ""
        power = f"{si(basis.used_power_W, 'W')} ({source})"
        rate = f"{basis.cost_per_hour:.4g} {currency}/h"
    return (
        f"{rate}: price {inputs.price:g} {currency}, lifetime {inputs.lifetime_years:g} years, "
        f"utilisation {percent(inputs.utilisation)}, power {power}, PUE {inputs.pue:g}, "
        f"electricity {inputs.electricity_price_per_kWh:g} {currency}/kWh"
    )


def _method_output(scores: Scores, *, verbose: bool) -> Iterator[Part]:
    """Yield the weights if there are any; if `verbose`, how means, intervals and verdicts were obtained."""
    weights = "; ".join(
        f"{each.weight:g} where {label(each.match, list(each.match))}" if each.match else f"{each.weight:g}"
        for each in scores.weights
    )
    means = [mean for ranking in scores.rankings for mean in ranking.pairs]
    if not means:
        return
    if weights:
        yield Text(f"  weights: {weights}; otherwise 1", "    ")
    if len(scores.sides) > 2:
        yield Text("  rank: 1 and the number of sides that are better by their verdict", "    ")
    if verbose:
        methods = ", ".join(dict.fromkeys(mean.method for mean in means))
        yield Text(
            f"  a case's score is its Hodges-Lehmann ratio, inverted where lower is better; it {FROM_PAIRS}", "    "
        )
        yield Text(f"  weighted geometric means with {percent(means[0].level)} intervals, {methods}", "    ")
        if len(means) > 1:
            yield Text(f"  verdicts are corrected for {len(means)} comparisons (Holm), intervals are not", "    ")


def _missing_output(scores: Scores, letters: Mapping[str, str], left_out: Sequence[str]) -> Iterator[Part]:
    """Yield what failed, was not run, or has no counterpart or value; then whether the score is incomplete."""
    for side in scores.sides:
        for line in side.failed:
            yield Text(f"FAILED in {letters[side.name]}: {line}", "  ")
        for line in side.unrun:
            yield Text(f"NOT RUN in {letters[side.name]}: {line}", "  ")
    told = [f"not scored, no counterpart: {short(name)}" for score in scores.scores for name in score.unmatched]
    for each in (metric for score in scores.scores for metric in score.metrics):
        if each.reason:
            told.append(f"no {each.metric}: {short(each.reason)}")
            continue
        told += [f"{case.name}: {short(reason)}".removeprefix(": ") for case in each.by_case for reason in case.missing]
    told += [f"left out of the runs: {reason}" for reason in left_out]
    for line in dict.fromkeys(told):
        yield Text(line, "  ")
    if scores.missing:
        yield Text(f"INCOMPLETE: {scores.lacking}", "  ")
