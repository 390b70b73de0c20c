"""Scores as text."""

from __future__ import annotations

import string
from typing import TYPE_CHECKING

import click

from benchmarker.cli.display.output import print_table
from benchmarker.comparing.formatting import percent, ratio, verdict
from benchmarker.formatting import clean, si
from benchmarker.procurement.ranking import BETTER, WORSE
from benchmarker.records.configurations import label
from benchmarker.report.study import named, telling

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarker.comparing.results import GeometricMean
    from benchmarker.procurement.costs import Basis
    from benchmarker.procurement.ranking import MetricRanking
    from benchmarker.procurement.score import CaseScore, MetricScore, Score, Scores


def print_scores(scores: Scores, left_out: Sequence[str]) -> None:
    """Print the sides, their scores or ranks, the cases, the inputs of the cost, and what is missing."""
    letters = {side.name: _letter(index) for index, side in enumerate(scores.sides)}
    if len(scores.scores) == 1:
        click.echo("score of the contender (B) over the baseline (A); above 1, the contender is better")
    else:
        click.echo("scores over the baseline (A); above 1, a side is better than the baseline")
    for side in scores.sides:
        disturbed = f", {side.disturbed} disturbed" if side.disturbed else ""
        success = f"{side.ok} of {side.asked} trials succeeded ({percent(side.success)})"
        of = f"; suite {', '.join(map(str, side.suites))}" if side.suites else ""
        click.echo(clean(f"{letters[side.name]}  {side.name}: {success}{disturbed}{of}"))
    click.echo()
    if len(scores.scores) == 1:
        _print_pair(scores.scores[0])
    else:
        _print_rankings(scores, letters)
    _print_warnings(scores, letters)
    _print_costs(scores)
    _print_method(scores)
    for score in scores.scores:
        where = "" if len(scores.scores) == 1 else f" ({letters[score.contender.name]})"
        for note in dict.fromkeys(score.notes):
            click.echo(clean(f"  note{where}: {note}"))
    _print_missing(scores, letters, left_out)


def _letter(index: int) -> str:
    return string.ascii_uppercase[index] if index < 26 else str(index + 1)


def _print_pair(score: Score) -> None:
    """Print a line for each metric of two sides, and a line for each case: its weight, both values and their ratio."""
    print_table(
        ["metric", "score", "cases", "verdict"],
        [
            [
                each.metric,
                ratio(each.mean) if each.mean else "-",
                f"{each.scored} of {each.cases}",
                verdict(each.mean) if each.mean else "-",
            ]
            for each in score.metrics
        ],
    )
    click.echo()
    shown = [each for each in score.metrics if each.mean]
    if not shown:
        return
    headings = ["weight"]
    for each in shown:
        headings += [f"{each.metric.replace('_per_', '/')} A", "B", "score"]
    rows = []
    for several in zip(*(each.by_case for each in shown), strict=True):
        row = [f"{several[0].weight:g}"]
        for metric, case in zip(shown, several, strict=True):
            row += [_value(case.baseline_value, metric), _value(case.contender_value, metric), _ratio(case)]
        rows.append(row)
    _print_cases(shown[0].by_case, headings, rows)


def _print_cases(cases: Sequence[CaseScore], headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a row for each case, with its name if there are several."""
    names = _names(cases)
    if any(names):
        headings = ["case", *headings]
        rows = [[name, *row] for name, row in zip(names, rows, strict=True)]
    print_table(headings, rows)


def _names(cases: Sequence[CaseScore]) -> list[str]:
    """Return short names of cases, from the factors that tell them apart; a single case has none."""
    axes = telling([each.case for each in cases])
    return [named(each.case, [name for name in axes if each.case.get(name) is not None]) for each in cases]


def _ratio(case: CaseScore) -> str:
    return "-" if case.ratio is None else f"{case.ratio:.3f}"


def _print_rankings(scores: Scores, letters: Mapping[str, str]) -> None:
    """Print for each metric the sides by rank, those that cannot be told apart, and the ratio of each in each case."""
    shown = [ranking for ranking in scores.rankings if ranking.pairs]
    for ranking in shown:
        click.echo(f"{ranking.metric}:")
        _print_places(ranking, scores, letters, whole=ranking is shown[0])
        for mean in ranking.pairs:
            if mean.verdict not in BETTER + WORSE:
                click.echo(
                    f"  {letters[mean.baseline]} and {letters[mean.contender]} cannot be told apart: "
                    f"{_over(mean, letters)} {ratio(mean)}, {verdict(mean)}"
                )
        of_metric = [each for score in scores.scores for each in score.metrics if each.metric == ranking.metric]
        _print_ratios(of_metric, letters)
        click.echo()


def _print_places(ranking: MetricRanking, scores: Scores, letters: Mapping[str, str], *, whole: bool) -> None:
    """Print the sides by rank; with `whole` also their success, cost and number of warnings."""
    sides = {side.name: side for side in scores.sides}
    costs = {basis.name: basis for basis in scores.costs}
    headings = ["rank", "side", "score", "verdict"]
    if whole:
        headings += ["success", *([f"{scores.currency}/h"] if costs else []), "warnings"]
    rows = []
    for place in ranking.places:
        mean, side = place.mean, sides[place.side]
        baseline = "1 (baseline)" if side is scores.sides[0] else "-"
        row = ["-" if place.rank is None else str(place.rank), f"{letters[place.side]} {place.side}"]
        row += [ratio(mean) if mean else baseline, mean.verdict if mean else "-"]
        if whole:
            row.append(percent(side.success))
            if costs:
                rate = costs[place.side].cost_per_hour
                row.append("-" if rate is None else f"{rate:.4g}")
            row.append("provisional" if mean and mean.provisional else str(len(side.warnings) or "-"))
        rows.append(row)
    print_table(headings, rows)


def _print_ratios(metrics: Sequence[MetricScore], letters: Mapping[str, str]) -> None:
    """Print the baseline's value of each case, and the ratio of each other side to it."""
    ratios = [{tuple(case.case.items()): case for case in metric.by_case} for metric in metrics]
    cases = {key: case for own in ratios for key, case in own.items()}
    rows = [
        [
            f"{case.weight:g}",
            _value(case.baseline_value, metrics[0]),
            *(_ratio(own[key]) if key in own else "-" for own in ratios),
        ]
        for key, case in cases.items()
    ]
    _print_cases(list(cases.values()), ["weight", "A", *(f"{letter}/A" for letter in list(letters.values())[1:])], rows)


def _print_warnings(scores: Scores, letters: Mapping[str, str]) -> None:
    """Print what makes a side, or the verdict on two of them, doubtful."""
    for side in scores.sides:
        for warning in side.warnings.values():
            click.echo(clean(f"  warning ({letters[side.name]}): {warning}"))
    about: dict[str, dict[str, None]] = {}
    for mean in (mean for ranking in scores.rankings for mean in ranking.pairs):
        for note in mean.notes:
            about.setdefault(note, {})[_over(mean, letters)] = None
    for note, pairs in about.items():
        click.echo(clean(f"  warning ({', '.join(pairs)}): {note}"))


def _over(mean: GeometricMean, letters: Mapping[str, str]) -> str:
    return f"{letters[mean.contender]}/{letters[mean.baseline]}"


def _value(value: float | None, metric: MetricScore) -> str:
    """Return a value with its unit; work per second, joule or cost is a plain number."""
    return si(value, "1/s" if metric.unit.startswith("1/") else metric.unit)


def _print_costs(scores: Scores) -> None:
    """Print the inputs of the cost of each side."""
    for index, basis in enumerate(scores.costs):
        click.echo(clean(f"{_letter(index)}  {_cost(basis, scores.currency or '')}"))
    if scores.costs:
        click.echo(
            "  samples_per_cost = samples_per_s / (price / (lifetime x 365 d x utilisation) "
            "+ power x PUE x electricity price); power is that of the trial, or else that of the cost file"
        )


def _cost(basis: Basis, currency: str) -> str:
    inputs, power, rate = basis.inputs, "no power", "no cost"
    if basis.used_power_W is not None and basis.cost_per_hour is not None:
        if not basis.measured:
            source = "from the cost file, not measured"
        elif basis.measured == basis.trials:
            source = "measured"
        else:
            source = f"measured in {basis.measured} of {basis.trials} trials"
            source += ", from the cost file in the others" if inputs.power_W else ""
        power = f"{si(basis.used_power_W, 'W')} ({source})"
        rate = f"{basis.cost_per_hour:.4g} {currency}/h"
    return (
        f"{rate}: price {inputs.price:g} {currency}, lifetime {inputs.lifetime_years:g} years, "
        f"utilisation {percent(inputs.utilisation)}, power {power}, PUE {inputs.pue:g}, "
        f"electricity {inputs.electricity_price_per_kWh:g} {currency}/kWh"
    )


def _print_method(scores: Scores) -> None:
    """Print how the means, their intervals and their verdicts were obtained."""
    weights = "; ".join(
        f"{each.weight:g} where {label(each.match, list(each.match))}" if each.match else f"{each.weight:g}"
        for each in scores.weights
    )
    means = [mean for ranking in scores.rankings for mean in ranking.pairs]
    if not means:
        return
    methods = ", ".join(dict.fromkeys(mean.method for mean in means))
    click.echo(
        "  a case's score is its Hodges-Lehmann ratio, inverted where lower is better; it is computed from pairs of "
        "trials and is not the quotient of the medians"
    )
    click.echo(
        clean(
            f"  geometric means of the cases' scores, weights {f'{weights}; otherwise 1' if weights else 'equal'}; "
            f"{percent(means[0].level)} interval, {methods}"
        )
    )
    if len(means) > 1:
        click.echo(f"  verdicts are corrected for {len(means)} comparisons (Holm), intervals are not")
    if len(scores.sides) > 2:
        click.echo("  rank: 1 and the number of sides that are better by their verdict")


def _print_missing(scores: Scores, letters: Mapping[str, str], left_out: Sequence[str]) -> None:
    """Print what failed, was not run, or has no counterpart or value; then whether the score is incomplete."""
    for side in scores.sides:
        for line in side.failed:
            click.echo(clean(f"FAILED in {letters[side.name]}: {line}"))
        for line in side.unrun:
            click.echo(clean(f"NOT RUN in {letters[side.name]}: {line}"))
    told = [f"not scored, no counterpart: {name}" for score in scores.scores for name in score.unmatched]
    for each in (metric for score in scores.scores for metric in score.metrics):
        if each.reason:
            told.append(f"no {each.metric}: {each.reason}")
            continue
        for name, case in zip(_names(each.by_case), each.by_case, strict=True):
            told += [f"{name}: {reason}".removeprefix(": ") for reason in case.missing]
    told += [f"left out of the runs: {reason}" for reason in left_out]
    for line in dict.fromkeys(told):
        click.echo(clean(line))
    if scores.missing:
        click.echo(clean("INCOMPLETE: " + ", ".join(f"{count} {what}" for what, count in scores.missing.items())))
