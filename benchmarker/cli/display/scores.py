"""Scores as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from benchmarker.cli.display.output import print_table
from benchmarker.comparing.formatting import percent, ratio
from benchmarker.formatting import clean, si
from benchmarker.records.configurations import label, text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarker.procurement.costs import Basis
    from benchmarker.procurement.score import MetricScore, Score, Side


def print_score(score: Score, left_out: Sequence[str]) -> None:
    """Print the sides, a line for each metric, the cases, the inputs of the cost, and everything that is missing."""
    click.echo("score of the contender (B) over the baseline (A); above 1, the contender is better")
    for letter, side in (("A", score.baseline), ("B", score.contender)):
        of = f"; suite {', '.join(map(str, side.suites))}" if side.suites else ""
        click.echo(
            clean(f"{letter}  {side.name}: {side.ok} of {side.asked} trials succeeded ({percent(side.success)}){of}")
        )
    click.echo()
    print_table(
        ["metric", "score", "cases", "verdict"],
        [
            [
                each.metric,
                ratio(each.mean) if each.mean else "-",
                f"{each.scored} of {each.cases}",
                each.mean.verdict if each.mean else "-",
            ]
            for each in score.metrics
        ],
    )
    click.echo()
    _print_cases(score)
    _print_costs(score)
    _print_method(score)
    for note in score.notes:
        click.echo(clean(f"  note: {note}"))
    _print_missing(score, left_out)


def _print_cases(score: Score) -> None:
    """Print a line for each case: its weight, and both values and the ratio of each metric that has any ratio."""
    shown = [each for each in score.metrics if each.mean]
    if not shown:
        return
    axes = list(dict.fromkeys(name for each in shown[0].by_case for name in each.case))
    headings = [*axes, "weight"]
    for each in shown:
        headings += [f"{each.metric} A", "B", "score"]
    rows = []
    for several in zip(*(each.by_case for each in shown), strict=True):
        row = [*(text(several[0].case.get(axis)) for axis in axes), f"{several[0].weight:g}"]
        for metric, case in zip(shown, several, strict=True):
            row += [_value(case.baseline_value, metric), _value(case.contender_value, metric)]
            row.append("-" if case.ratio is None else f"{case.ratio:.3f}")
        rows.append(row)
    print_table(headings, rows)


def _value(value: float | None, metric: MetricScore) -> str:
    """Return a value with its unit; work per second, joule or cost is a plain number."""
    return si(value, "1/s" if metric.unit.startswith("1/") else metric.unit)


def _print_costs(score: Score) -> None:
    """Print the inputs of the cost of each side."""
    for letter, basis in zip("AB", score.costs, strict=False):
        click.echo(clean(f"{letter}  {_cost(basis, score.currency or '')}"))
    if score.costs:
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


def _print_method(score: Score) -> None:
    """Print how the means and their intervals were obtained."""
    weights = "; ".join(
        f"{each.weight:g} where {label(each.match, list(each.match))}" if each.match else f"{each.weight:g}"
        for each in score.weights
    )
    means = [each.mean for each in score.metrics if each.mean]
    methods = ", ".join(dict.fromkeys(mean.method for mean in means))
    if means:
        click.echo(
            clean(
                "  a case's score is its Hodges-Lehmann ratio, inverted where lower is better; it is computed from "
                "pairs of trials and is not the quotient of the medians A and B\n"
                f"  geometric means of the cases' scores, weights {f'{weights}; otherwise 1' if weights else 'equal'}; "
                f"{percent(means[0].level)} interval, {methods}"
            )
        )


def _print_missing(score: Score, left_out: Sequence[str]) -> None:
    """Print what failed, was not run, or has no counterpart or value; then whether the score is incomplete."""
    for letter, side in (("A", score.baseline), ("B", score.contender)):
        _print_side(letter, side)
    for name in score.unmatched:
        click.echo(clean(f"not scored, no counterpart: {name}"))
    for each in score.metrics:
        if each.reason:
            click.echo(clean(f"no {each.metric}: {each.reason}"))
            continue
        for case in each.by_case:
            for reason in case.missing:
                click.echo(clean(f"{label(case.case, list(case.case))}: {reason}".removeprefix(": ")))
    for reason in left_out:
        click.echo(clean(f"left out of the runs: {reason}"))
    if score.missing:
        click.echo(clean("INCOMPLETE: " + ", ".join(f"{count} {what}" for what, count in score.missing.items())))


def _print_side(letter: str, side: Side) -> None:
    for line in side.failed:
        click.echo(clean(f"FAILED in {letter}: {line}"))
    for line in side.unrun:
        click.echo(clean(f"NOT RUN in {letter}: {line}"))
