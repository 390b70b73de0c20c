"""Scores, ranks, costs and acceptance, with the numbers of `suite score` and `suite accept`."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarker.comparing.formatting import measure, short, verdict, words_of
from benchmarker.formatting import part, si
from benchmarker.page.page_model import Listing, Section, searchable, table_of
from benchmarker.page.study import Study
from benchmarker.procurement.accept import Acceptance
from benchmarker.procurement.costs import Basis
from benchmarker.procurement.ranking import MetricRanking, in_words
from benchmarker.procurement.score import CaseScore, MetricScore, Scores
from benchmarker.records.factors import Value, label
from benchmarker.tables.table import RATIO, Column, number

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
        lead.append(f"The score is incomplete: {found.lacking}.")
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
    rows = [
        (ranking, place, _metrics(found, ranking).get(place.side), place.side == found.sides[0].name)
        for ranking in found.rankings
        for place in ranking.places
        if ranked or place.side != found.sides[0].name
    ]
    table = table_of(
        rows,
        (Column("metric"), lambda row: measure(row[0].metric)),
        *((number("rank"), lambda row: row[1].rank),) * ranked,
        (Column("side"), lambda row: short(row[1].side)),
        (
            number("score", RATIO),
            lambda row: row[1].mean.ratio if row[1].mean else 1.0 if row[3] and row[1].rank else None,
        ),
        (number("interval from", RATIO), lambda row: row[1].mean.low if row[1].mean else None),
        (number("interval to", RATIO), lambda row: row[1].mean.high if row[1].mean else None),
        (Column("cases"), lambda row: f"{row[2].scored} of {row[2].cases}" if row[2] else ""),
        (
            Column("verdict"),
            lambda of: verdict(of[1].mean) if of[1].mean else "baseline" if of[3] else of[2].reason if of[2] else "",
        ),
        *((Column("tied with"), lambda row: ", ".join(map(short, row[1].ties))),) * ranked,
    )
    return Listing("Scores", table)


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
    table = table_of(
        every,
        (Column("case"), lambda name: name),
        *((number("weight"), lambda name: any_case[name].weight),) * weighed,
        *(
            (number(heading, RATIO), lambda name, own=own, end=end: getattr(own[name], end) if name in own else None)
            for side, own in cases.items()
            for heading, end in ((f"{short(side)} / {a}", "ratio"), ("from", "low"), ("to", "high"))
        ),
    )
    caption = "The ratio of each case over the baseline, with its 95% interval, from and to; above 1 is better."
    title = f"{measure(ranking.metric)} by case"
    return searchable(title, table, caption)


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
    table = table_of(
        found.outcomes,
        (Column("verdict"), lambda each: each.verdict),
        (Column("case"), lambda each: each.name),
        (Column("metric"), lambda each: measure(each.metric) if each.metric else ""),
        (Column("median"), lambda each: _amount(each.value, each.unit)),
        (Column("over trials"), lambda one: _amount(one.lowest, one.unit, f" to {_amount(one.highest, one.unit)}")),
        (number("trials"), lambda each: each.trials),
        (Column("min"), lambda each: _amount(each.min, each.unit)),
        (Column("max"), lambda each: _amount(each.max, each.unit)),
        (
            Column("why", prose=True),
            lambda each: "; ".join([*each.reasons, *(f"but {doubt}" for doubt in each.doubts)]),
        ),
    )
    passed = sum(each.verdict == "PASS" for each in found.outcomes)
    unasked = f" No case of the reference matches: {'; '.join(found.unasked)}." if found.unasked else ""
    caption = f"{passed} of {len(found.outcomes)} passed.{unasked}"
    return searchable(result, table, caption)


def _amount(value: float | None, unit: str, more: str = "") -> str:
    """Return a value with its unit and more; empty if there is none."""
    return "" if value is None else si(value, unit) + more
