"""Scores as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from benchmarker.cli.display.comparisons import COLOURS
from benchmarker.cli.display.output import print_table, print_text
from benchmarker.cli.display.table import Coloured
from benchmarker.comparing.formatting import SCORE, SPEED, Terms, gist, percent, ratio, sentence, short
from benchmarker.comparing.results import DELTAS
from benchmarker.formatting import si
from benchmarker.records.configurations import label, text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarker.procurement.costs import Basis
    from benchmarker.procurement.score import MetricScore, Score, Side


def print_score(score: Score, left_out: Sequence[str], *, wide: bool = False, verbose: bool = False) -> None:
    """Print a verdict for each metric, the sides, the cases, the basis of the cost, and everything that is missing."""
    for each in score.metrics:
        if each.mean:
            print_text(f"{each.metric}: {sentence(each.mean, _terms(each))}", "  ", COLOURS[each.mean.verdict])
    for letter, side in (("A", score.baseline), ("B", score.contender)):
        succeeded = f"{side.ok} of {side.asked} trials succeeded ({percent(side.success)})"
        print_text(f"{letter}  {short(side.name)}: {succeeded}", "   ")
    click.echo()
    print_text("score of the contender (B) over the baseline (A); above 1, the contender is better")
    rows = [
        [
            each.metric,
            Coloured(gist(each.mean, _terms(each)), COLOURS[each.mean.verdict]) if each.mean else "-",
            ratio(each.mean) if each.mean else "-",
            f"{each.scored} of {each.cases}",
        ]
        for each in score.metrics
    ]
    print_table(["metric", "B is", "score", "cases"], rows, wide=wide)
    click.echo()
    _print_cases(score, wide=wide)
    _print_costs(score)
    _print_method(score, verbose=verbose)
    for note in score.notes:
        print_text(f"  note: {short(note)}", "    ")
    _print_missing(score, left_out)


def _terms(each: MetricScore) -> Terms:
    """Return the terms of a mean, which is above 1 where the contender is better."""
    is_speed = each.unit == "s" or each.unit.endswith("/s")
    return Terms(each.metric, SPEED if is_speed else SCORE, DELTAS["trial"])


def _print_cases(score: Score, *, wide: bool) -> None:
    """Print a line for each case: its weight, and both values and the ratio of each metric that has any ratio."""
    shown = [each for each in score.metrics if each.mean]
    if not shown:
        return
    if score.shared:
        print_text(score.shared)
    first = shown[0].by_case
    columns = {"case": [each.name for each in first]} if any(each.name for each in first) else {}
    axes = dict.fromkeys(name for each in first for name in each.case) if wide else ()
    columns |= {name: [text(each.case.get(name)) for each in first] for name in axes}
    columns["weight"] = [f"{each.weight:g}" for each in first]
    drop = ["weight"] if len(set(columns["weight"])) == 1 else []
    for metric in shown:
        name, cases = metric.metric, metric.by_case
        columns[f"{name} A"] = [_value(each.baseline_value, metric) for each in cases]
        columns[f"{name} B"] = [_value(each.contender_value, metric) for each in cases]
        columns[f"{name} score"] = ["-" if each.ratio is None else f"{each.ratio:.3f}" for each in cases]
        drop[1:1] = [f"{name} A", f"{name} B"]
    print_table(list(columns), [list(row) for row in zip(*columns.values(), strict=True)], drop=drop, wide=wide)


def _value(value: float | None, metric: MetricScore) -> str:
    """Return a value with its unit; work per second, joule or cost is a plain number."""
    return si(value, "1/s" if metric.unit.startswith("1/") else metric.unit)


def _print_costs(score: Score) -> None:
    """Print the inputs of the cost of each side."""
    for letter, basis in zip("AB", score.costs, strict=False):
        print_text(f"{letter}  {_cost(basis, score.currency or '')}", "   ")
    if score.costs:
        print_text(
            "  samples_per_cost = samples_per_s / (price / (lifetime x 365 d x utilisation) "
            "+ power x PUE x electricity price); power is that of the trial, or else that of the cost file",
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
            source = f"measured in {basis.measured} of {basis.trials} trials"
            source += ", from the cost file in the others" if inputs.power_W else ""
        power = f"{si(basis.used_power_W, 'W')} ({source})"
        rate = f"{basis.cost_per_hour:.4g} {currency}/h"
    return (
        f"{rate}: price {inputs.price:g} {currency}, lifetime {inputs.lifetime_years:g} years, "
        f"utilisation {percent(inputs.utilisation)}, power {power}, PUE {inputs.pue:g}, "
        f"electricity {inputs.electricity_price_per_kWh:g} {currency}/kWh"
    )


def _print_method(score: Score, *, verbose: bool) -> None:
    """Print the weights if there are any; if `verbose`, how the means and their intervals were obtained."""
    weights = "; ".join(
        f"{each.weight:g} where {label(each.match, list(each.match))}" if each.match else f"{each.weight:g}"
        for each in score.weights
    )
    means = [each.mean for each in score.metrics if each.mean]
    if not means:
        return
    if weights:
        print_text(f"  weights: {weights}; otherwise 1", "    ")
    if verbose:
        methods = ", ".join(dict.fromkeys(mean.method for mean in means))
        print_text(
            "  a case's score is its Hodges-Lehmann ratio, inverted where lower is better; it is computed from "
            "pairs of trials and is not the quotient of the medians A and B",
            "    ",
        )
        print_text(f"  weighted geometric means with {percent(means[0].level)} intervals, {methods}", "    ")


def _print_missing(score: Score, left_out: Sequence[str]) -> None:
    """Print what failed, was not run, or has no counterpart or value; then whether the score is incomplete."""
    for letter, side in (("A", score.baseline), ("B", score.contender)):
        _print_side(letter, side)
    lines = [f"not scored, no counterpart: {short(name)}" for name in score.unmatched]
    for each in score.metrics:
        if each.reason:
            lines.append(f"no {each.metric}: {short(each.reason)}")
            continue
        lines += [
            f"{case.name}: {short(reason)}".removeprefix(": ") for case in each.by_case for reason in case.missing
        ]
    lines += [f"left out of the runs: {reason}" for reason in left_out]
    if score.missing:
        lines.append("INCOMPLETE: " + ", ".join(f"{count} {what}" for what, count in score.missing.items()))
    for line in lines:
        print_text(line, "  ")


def _print_side(letter: str, side: Side) -> None:
    for line in side.failed:
        print_text(f"FAILED in {letter}: {line}", "  ")
    for line in side.unrun:
        print_text(f"NOT RUN in {letter}: {line}", "  ")
