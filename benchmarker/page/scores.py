"""Scores, ranks, costs and acceptance, with the numbers of `suite score` and `suite accept`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarker.comparing.formatting import measure, short, verdict, words_of
from benchmarker.formatting import part, si
from benchmarker.page.page_model import Listing, Section, searchable, table_of
from benchmarker.procurement.ranking import in_words
from benchmarker.records.factors import label
from benchmarker.tables.table import RATIO, Cell, Column, Table, number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarker.page.study import Study
    from benchmarker.procurement.accept import Acceptance
    from benchmarker.procurement.costs import Basis
    from benchmarker.procurement.ranking import MetricRanking
    from benchmarker.procurement.score import CaseScore, MetricScore, Scores
    from benchmarker.records.factors import Value

HOW = (
    "A score is the weighted geometric mean of the cases' ratios over the baseline {baseline}; above 1, a side is "
    "better than the baseline. Intervals are 95%; verdicts are corrected for all comparisons (Holm), intervals are not."
)
RANKS = "The rank of a side is 1 plus the number of sides that are better by their verdict."
COST = (
    "samples/cost = samples/s / (price / (lifetime · 365 days · utilisation) + power · PUE · electricity price). Power "
    "is that of the trial, or else that of the cost file."
)


def scores(study: Study) -> Section | None:
    """Return the scores in each metric, by side and by case, the success of each side, and the basis of its cost."""
    found = study.scores
    if found is None:
        return None
    names = _Names(study)
    lead = [*(_ranked(found) if len(found.sides) > 2 else ()), HOW.format(baseline=short(found.sides[0].name))]
    if len(found.sides) > 2:
        lead.append(RANKS)
    if found.weights:
        weights = "; ".join(f"{each.weight:g} where {label(each.match, list(each.match))}" for each in found.weights)
        lead.append(f"Weights: {weights}; otherwise 1.")
    if found.missing:
        missing = ", ".join(f"{number} {what}" for what, number in found.missing.items())
        lead.append(f"The score is incomplete: {missing}.")
    parts = [_means(found), *filter(None, (_cases(found, ranking, names) for ranking in found.rankings))]
    parts += [_success(found), *([_costs(found)] if found.costs else [])]
    notes = dict.fromkeys(
        f"{short(score.contender.name)}: {note}" if len(found.scores) > 1 else note
        for score in found.scores
        for note in score.notes
    )
    return Section("score", "Score", tuple(lead), tuple(parts), tuple(notes))


def _ranked(found: Scores) -> Iterator[str]:
    """Yield each ranking as a sentence."""
    for ranking in found.rankings:
        unit = next(iter(_metrics(found, ranking).values())).unit
        if said := in_words(ranking, words_of(unit)):
            yield f"{measure(ranking.metric)}: {said}."


class _Names:
    """The names of cases, found by their factors."""

    def __init__(self, study: Study) -> None:
        self._groups = study.groups
        self._found: dict[tuple[str, ...], dict[tuple[Value, ...], str]] = {}

    def of(self, case: CaseScore) -> str:
        """Return the name of a case of a score."""
        keys = tuple(case.case)
        if keys not in self._found:
            self._found[keys] = {tuple(group.factors.get(key) for key in keys): group.case for group in self._groups}
        return self._found[keys].get(tuple(case.case.values()), label(case.case, keys))


def _means(found: Scores) -> Listing:
    """Return the mean of each side in each metric, by rank."""
    ranked = len(found.sides) > 2
    columns = (
        Column("metric"),
        *((number("rank"),) if ranked else ()),
        Column("side"),
        number("score", RATIO),
        number("interval from", RATIO),
        number("interval to", RATIO),
        Column("cases"),
        Column("verdict"),
        *((Column("tied with"),) if ranked else ()),
    )
    rows: list[tuple[Cell, ...]] = []
    for ranking in found.rankings:
        metrics = _metrics(found, ranking)
        for place in ranking.places:
            baseline = place.side == found.sides[0].name
            if baseline and not ranked:
                continue
            metric = metrics.get(place.side)
            mean = place.mean
            rows.append(
                (
                    measure(ranking.metric),
                    *((place.rank,) if ranked else ()),
                    short(place.side),
                    mean.ratio if mean else 1.0 if baseline and place.rank else None,
                    mean.low if mean else None,
                    mean.high if mean else None,
                    f"{metric.scored} of {metric.cases}" if metric else "",
                    verdict(mean) if mean else "baseline" if baseline else metric.reason if metric else "",
                    *((", ".join(map(short, place.ties)),) if ranked else ()),
                )
            )
    return Listing("Scores", Table(columns, tuple(rows)))


def _metrics(found: Scores, ranking: MetricRanking) -> dict[str, MetricScore]:
    """Return the score of each contender in one metric."""
    return {
        score.contender.name: metric
        for score in found.scores
        for metric in score.metrics
        if metric.metric == ranking.metric
    }


def _cases(found: Scores, ranking: MetricRanking, names: _Names) -> Listing | None:
    """Return every case in one metric: the ratio of each side to the baseline, with its interval."""
    metrics = _metrics(found, ranking)
    if not ranking.pairs:
        return None
    cases = {side: {names.of(case): case for case in metric.by_case} for side, metric in metrics.items()}
    every = dict.fromkeys(name for own in cases.values() for name in own)
    a = short(found.sides[0].name)
    any_case = {name: next(own[name] for own in cases.values() if name in own) for name in every}
    weighed = len({case.weight for case in any_case.values()}) > 1
    columns = [Column("case"), *([number("weight")] if weighed else [])]
    for side in cases:
        ends = (f"{short(side)} / {a}", "from", "to")
        columns += [number(each, RATIO) for each in ends]
    rows = []
    for name in every:
        row: list[Cell] = [name, *([any_case[name].weight] if weighed else [])]
        for own in cases.values():
            row += [own[name].ratio, own[name].low, own[name].high] if name in own else [None, None, None]
        rows.append(tuple(row))
    caption = "The ratio of each case over the baseline, with its 95% interval, from and to; above 1 is better."
    title = f"{measure(ranking.metric)} by case"
    return searchable(title, Table(tuple(columns), tuple(rows)), caption)


def _success(found: Scores) -> Listing:
    table = table_of(
        found.sides,
        (Column("side"), lambda side: short(side.name)),
        (Column("trials succeeded"), lambda side: f"{side.ok} of {side.asked}"),
        (number("success", "%"), lambda side: side.success),
        (number("disturbed"), lambda side: side.disturbed),
        (Column("suite"), lambda side: ", ".join(map(str, side.suites)) or "none"),
        (
            Column("missing", prose=True),
            lambda side: "; ".join([*side.failed, *(f"not run: {each}" for each in side.unrun)]),
        ),
    )
    return Listing("Success", table)


def _costs(found: Scores) -> Listing:
    """Return the inputs of the cost of each side."""
    currency = found.currency or ""
    table = table_of(
        found.costs,
        (Column("side"), lambda cost: short(cost.name)),
        (number(f"{currency} per hour"), lambda cost: cost.cost_per_hour),
        (number(f"price, {currency}"), lambda cost: cost.inputs.price),
        (number("lifetime, years"), lambda cost: cost.inputs.lifetime_years),
        (number("utilisation", "%"), lambda cost: cost.inputs.utilisation),
        (number("power", "W"), lambda cost: cost.used_power_W),
        (Column("power from"), _source),
        (number("PUE"), lambda cost: cost.inputs.pue),
        (number(f"electricity, {currency} per kWh"), lambda cost: cost.inputs.electricity_price_per_kWh),
    )
    return Listing("Cost", table, COST)


def _source(cost: Basis) -> str:
    """Return where the power of a side is from."""
    if cost.used_power_W is None:
        return "unknown"
    if cost.measured in (0, cost.trials):
        return "measured" if cost.measured else "cost file"
    return f"measured in {part(cost.measured, cost.trials, 'trial')}"


def acceptance(study: Study) -> Section | None:
    """Return what each result has to meet, and whether it does."""
    if not study.acceptances:
        return None
    lead = (
        "A case passes if its median over trials is within its bounds, no trial failed or is missing, and there are as "
        "many trials as required."
    )
    return Section("acceptance", "Acceptance", (lead,), tuple(_outcomes(*each) for each in study.acceptances))


def _outcomes(result: str, found: Acceptance) -> Listing:
    rows: list[tuple[Cell, ...]] = []
    for each in found.outcomes:
        value, lowest, highest, low, high = (
            "" if number is None else si(number, each.unit)
            for number in (each.value, each.lowest, each.highest, each.min, each.max)
        )
        rows.append(
            (
                each.verdict,
                each.name,
                measure(each.metric) if each.metric else "",
                value,
                f"{lowest} to {highest}" if lowest else "",
                each.trials,
                low,
                high,
                "; ".join([*each.reasons, *(f"but {doubt}" for doubt in each.doubts)]),
            )
        )
    columns = (
        Column("verdict"),
        Column("case"),
        Column("metric"),
        Column("median"),
        Column("over trials"),
        number("trials"),
        Column("min"),
        Column("max"),
        Column("why", prose=True),
    )
    passed = sum(each.verdict == "PASS" for each in found.outcomes)
    unasked = f" No case of the reference matches: {'; '.join(found.unasked)}." if found.unasked else ""
    caption = f"{passed} of {len(found.outcomes)} passed.{unasked}"
    return searchable(result, Table(columns, tuple(rows)), caption)
