"""The first screen: the answer, how sure it is, and what to know before believing it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from benchmarker.comparing import diagnosis
from benchmarker.comparing.disturbances import disturbances
from benchmarker.comparing.formatting import (
    Terms,
    enough,
    explained,
    few_runs,
    headline,
    measure,
    numbers,
    over_cases,
    percent,
    ratio,
    sentence,
    short,
    tally,
    verdict,
)
from benchmarker.comparing.results import Comparison, GeometricMean
from benchmarker.formatting import count, part, shortened, si, some
from benchmarker.formatting import sentence as capitalised
from benchmarker.page.page_model import Card, Doubt
from benchmarker.page.study import Group, Study
from benchmarker.procurement.accept import Acceptance
from benchmarker.procurement.completeness import REMEDY
from benchmarker.procurement.score import MetricScore, coverage, terms_of
from benchmarker.records.step_times import STEP_TIME
from benchmarker.roofline.model import BEYOND, beyond
from benchmarker.stats.median_interval import median_spreads

MOST_CARDS = 4
MOST_REASONS = 3
MOST_TRIALS = 4
LONGEST = 320
"""Characters of a doubt; the section that it points to has all."""


def cards(study: Study, speedups: Sequence[Card]) -> list[Card]:
    """Return the answers: scores if there are any, otherwise geometric means, comparisons, or their numbers if many.

    Those of a single result are followed by the speed-ups of several devices.
    """
    found = [*_scored(study), *_compared(study), *(() if study.scores else speedups)] or [_uncompared(study)]
    return [*found, *(_accepted(*each) for each in study.acceptances)]


def _uncompared(study: Study) -> Card:
    """Return the card of what is not compared: of a single configuration its step time, and why."""
    values = study.values(study.groups[0], STEP_TIME) if len(study.groups) == 1 else []
    if not values:
        return Card("none", "not compared", study.unjudged, "-", "")
    spread, (ends,) = median_spreads([values])
    told = f"median over {count(len(values), 'trial')}"
    told += f"; {spread} {si(ends[0], 's')} to {si(ends[1], 's')}" if ends else ""
    return Card("none", measure(STEP_TIME), told, si(median(values), "s"), f"Not compared: {study.unjudged}.")


def _scored(study: Study) -> Iterator[Card]:
    """Yield a card for each metric of two sides.

    Of several sides, it is a card for each contender in the first metric, by rank, and for the best in each other one.
    """
    found = study.scores
    if found is None:
        return
    scores = found.scores

    def covered(metrics: Sequence[MetricScore]) -> str:
        return f"{coverage(metrics, found)}: " if found.missing else ""

    if len(scores) == 1:
        for metric in scores[0].metrics:
            if metric.mean:
                each = _single(study, metric)
                terms = Terms.of(each) if isinstance(each, Comparison) else terms_of(metric)
                yield _card(study, each, covered([metric]), terms)
        return
    for index, ranking in enumerate(found.rankings):
        metrics = [score.metrics[index] for score in scores]
        placed = [place for place in ranking.places if place.mean]
        for place in placed[: 1 if index else MOST_CARDS]:
            assert place.mean
            yield _card(study, place.mean, f"{covered(metrics)}rank {place.rank}: ", terms_of(metrics[0]))


def _single(study: Study, metric: MetricScore) -> Comparison | GeometricMean:
    """Return the mean of a metric, or the comparison that tells the same if there is only one case."""
    family = study.family.comparisons if study.family else []
    assert metric.mean
    return family[0] if metric.cases == 1 == len(family) and family[0].metric == metric.metric else metric.mean


def _compared(study: Study) -> Iterator[Card]:
    """Yield cards of the comparisons, unless the scores tell the same."""
    family = study.family
    if family is None or (study.scores and study.rules.metric in {each.metric for each in study.scores.rankings}):
        return
    judged: Sequence[Comparison | GeometricMean] = family.geometric_means or family.comparisons
    if len(judged) <= MOST_CARDS:
        for each in judged:
            where = "" if isinstance(each, GeometricMean) or len(judged) == 1 else f"{_case(study, each)}: "
            yield _card(study, each, where, Terms.of(family.comparisons[0]))
        return
    for word, number in Counter(each.verdict for each in family.comparisons).most_common():
        yield Card(word, word, f"of {len(family.comparisons)} comparisons", str(number), measure(study.rules.metric))


def _case(study: Study, each: Comparison) -> str:
    assert study.family
    return study.case_of(study.matches[study.family.comparisons.index(each)])


def _card(study: Study, each: Comparison | GeometricMean, before: str, terms: Terms) -> Card:
    """Return the card of a verdict, which says what a terminal says, each thing once."""
    value, _, interval = ratio(each).partition(" ")
    details = [f"{measure(terms.metric)}: {'B/A' if _is_compared(study, each) else 'score'} {value}"]
    if each.ratio is not None:
        details.append(f"{percent(each.level)} interval {interval}" if each.low is not None else "no interval")
    shown, explanation = headline(each, terms), ""
    if isinstance(each, Comparison):
        details.append(numbers(each))
        if each.low is None and min(each.trials) > 1:
            details.append(
                f"trials from {_range(each.baseline_trials, each)} and from {_range(each.contender_trials, each)}"
            )
        said = "; ".join(filter(None, [sentence(each, terms), enough(each)]))
        said = said.removeprefix(f"{verdict(each)}: ").removeprefix(f"{shown} for a test; ")
        explanation = explained(each)
    else:
        said = over_cases(each, terms)
        if study.family and terms.metric == study.rules.metric:
            sides = short(each.baseline), short(each.contender)
            own = [one for one in study.family.comparisons if (short(one.baseline), short(one.contender)) == sides]
            details.append(f"of {count(len(own), 'case')}: {tally(own)}")
    return Card(each.verdict, before + verdict(each), f"{said}.", shown, "; ".join(details), explanation)


def _range(trials: Mapping[str, float], each: Comparison) -> str:
    """Return the values of the trials of a side: they show how sure a ratio without an interval is."""
    return f"{si(min(trials.values()), each.unit)} to {si(max(trials.values()), each.unit)}"


def _is_compared(study: Study, each: Comparison | GeometricMean) -> bool:
    return isinstance(each, Comparison) or (study.family is not None and each in study.family.geometric_means)


def _accepted(result: str, found: Acceptance) -> Card:
    passed = sum(each.verdict == "PASS" for each in found.outcomes)
    near = sum(each.near for each in found.outcomes)
    good = passed == len(found.outcomes)
    return Card(
        "better" if good else "worse",
        "passed" if good else "failed",
        f"{result} {'meets' if good else 'does not meet'} the reference.",
        f"{passed} of {len(found.outcomes)}",
        "cases passed" + (f"; {near} borderline (another run may be judged otherwise)" if near else ""),
    )


def doubts(study: Study, unsteady: Sequence[str]) -> list[Doubt]:
    """Return what to know before believing the answer, the gravest first; `unsteady` says which trials are."""
    found = dict[str, str]()
    for section, texts in (
        ("verdicts", _provisional(study)),
        ("faults", _sides(study)),
        ("over_time", unsteady),
        ("measured", _environments(study)),
        ("faults", _missing(study)),
        ("verdicts", _undecided(study)),
        ("roofline", [capitalised(BEYOND)] if _above(study) else []),
    ):
        for text in texts:
            found.setdefault(shortened(text, LONGEST), section)
    return [Doubt(text, section) for text, section in found.items()]


def _provisional(study: Study) -> Iterator[str]:
    judged = study.family.comparisons if study.family else []
    few = [few_runs(each.method, each.runs) for each in judged]
    disturbed = sum(each.provisional not in (None, why) for each, why in zip(judged, few, strict=True))
    if disturbed:
        yield (
            f"{part(disturbed, len(judged), 'verdict', 'is', 'are')} provisional, because most trials of a side were "
            "disturbed: repeat them undisturbed before you rely on the result."
        )
    for why, number in Counter(filter(None, few)).items():
        yield f"{part(number, len(judged), 'verdict', 'is', 'are')} provisional: {why}."


def _sides(study: Study) -> Iterator[str]:
    """Yield what makes each side doubtful, whatever it is compared with."""
    for side, groups in study.sides.items():
        of = f"{side}: " if side else ""
        for kind, text in diagnosis.doubts([group.records for group in groups]).items():
            told = text + (_disturbed(groups) if kind == "disturbed" else "")
            yield f"{of}{told}." if of else capitalised(told)
        if capped := diagnosis.power_caps([record for group in groups for record in group.records]):
            where = [group.case for group in groups if len(groups) > 1 and diagnosis.power_caps(group.records)]
            told = f"{capped}{': ' * bool(where)}{some(where, MOST_TRIALS, '; ')}"
            yield f"{of}{told}." if of else capitalised(told)
    untold = _untold(study)
    if untold:
        trials = part(untold, len(study.records), "trial", "has", "have")
        yield f"{trials} no interference counters, so disturbances are unknown."


def _disturbed(groups: Sequence[Group]) -> str:
    """Return the names of the disturbed trials of a side."""
    found = [
        f"{group.case}, trial {record.trial}" if len(groups) > 1 else f"trial {record.trial}"
        for group in groups
        for record, why in zip(group.ok, disturbances(group.ok), strict=True)
        if why
    ]
    return f"; disturbed: {some(found, MOST_TRIALS, '; ')}"


def _untold(study: Study) -> int:
    return sum(record.error is None and record.interference is None for record in study.records)


def _environments(study: Study) -> Iterator[str]:
    """Yield differences between the environments, the work and the suites of the sides, with the number of cases."""
    notes: Counter[tuple[str, str]] = Counter()
    cases = Counter(match.contender.name for match in study.matches)
    rate = "flop_per_s" if study.rules.metric.startswith("step_time") else ""
    for match in study.matches:
        for note in diagnosis.between(match.baseline.records, match.contender.records, rate):
            notes[match.contender.name, note] += 1
    for (name, note), number in notes.most_common(2 * MOST_REASONS):
        side = f"{short(name)}: " if len(cases) > 1 else ""
        where = "" if number == cases[name] else f" ({number} of {cases[name]} cases)"
        yield f"{side}{note}{where}." if side else capitalised(note + where)
    yield from map(capitalised, study.family.notes if study.family else ())


def _missing(study: Study) -> Iterator[str]:
    """Yield what was asked for and is not in the answer."""
    for side, groups in study.sides.items():
        records = [record for group in groups for record in group.records]
        errors = [record.error for record in records if record.error]
        if errors:
            of = f"{side}: " if side else ""
            yield (
                f"{of}{part(len(errors), len(records), 'trial')} failed, for instance: {errors[0].message}. "
                "The figures are based on the others."
            )
    unrun = sum(each.trials for each in study.planned.missing)
    if unrun:
        yield f"{count(unrun, 'planned trial')} {_has(unrun)} no record; {REMEDY}."
    if study.planned.left_out:
        left = list(study.planned.left_out)
        yield f"Left out of the plan: {_some(left)}."
    if study.faults:
        number = len(study.faults)
        yield f"{count(number, 'file')} could not be read and {'is' if number == 1 else 'are'} not included."
    if study.family and study.family.unmatched:
        yield f"Not compared, because there is no counterpart: {_some(study.family.unmatched)}."
    if study.unscored and not study.unjudged:
        yield f"No score: {study.unscored}."


def _has(number: int) -> str:
    return "has" if number == 1 else "have"


def _some(texts: Sequence[str]) -> str:
    return some([short(text) for text in texts], MOST_REASONS, "; ")


def _undecided(study: Study) -> Iterator[str]:
    """Yield why verdicts are undecided, and what would decide them."""
    if study.family is None:
        return
    comparisons = study.family.comparisons
    if comparisons and all(each.method == "none" for each in comparisons):
        reasons = list(dict.fromkeys(reason for each in comparisons for reason in _untested(each)))
        yield f"No verdict is possible: {_some(reasons)}."
    means = [*study.family.geometric_means]
    if study.scores:
        means = [mean for ranking in study.scores.rankings for mean in ranking.pairs]
        means += study.family.geometric_means
    for mean in means:
        for note in mean.notes:
            if not note.startswith("the verdict is provisional"):
                yield f"{short(mean.contender)} over {short(mean.baseline)}: {note}."


def _untested(each: Comparison) -> list[str]:
    """Return why a comparison has no test: the notes on a side without a value, or that there are too few trials."""
    if each.ratio is None:
        empty = [name for name, trials in zip((each.baseline, each.contender), each.trials, strict=True) if trials == 0]
        return [note for note in each.notes if note.startswith(tuple(f"{name}: " for name in empty))]
    few = "one trial on a side" if min(each.trials) < 2 else "one round with trials of both sides"
    return [f"with only {few}, the variation between processes is unknown"]


def _above(study: Study) -> bool:
    return beyond([each for _, each in study.rooflines[0]])
