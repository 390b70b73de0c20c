"""Notes on a comparison: caveats that a reader of its verdict must know, and how the suites of its sides differ."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from benchmarker.comparing import diagnosis
from benchmarker.comparing.formatting import few_runs, likely, unit
from benchmarker.comparing.matching import Match
from benchmarker.comparing.results import Comparison, Verdict
from benchmarker.comparing.samples import BY_RUN, T_TESTS, Mean, Tested
from benchmarker.formatting import count, part
from benchmarker.records.record import Record
from benchmarker.records.suite import PlannedSuite, SuiteId, differences
from benchmarker.stats.shift import fewest

_PER_SIDE = " per side"


def suites_of(records: Iterable[Record]) -> list[SuiteId]:
    """Return the suites that records come from, each once."""
    return list(dict.fromkeys(record.suite.id for record in records if record.suite))


def suite_notes(matches: Sequence[Match], known: Mapping[str, PlannedSuite]) -> list[str]:
    """Describe how the suites of baseline and contender differ; `known` has the cases of suites by SHA-256."""
    notes = []
    for match in matches:
        baseline, contender = suites_of(match.baseline.records), suites_of(match.contender.records)
        if {each.sha256 for each in baseline} != {each.sha256 for each in contender}:
            notes.append(_difference(baseline, contender, known))
    return list(dict.fromkeys(notes))


def _difference(baseline: Sequence[SuiteId], contender: Sequence[SuiteId], known: Mapping[str, PlannedSuite]) -> str:
    one, two = (", ".join(map(str, side)) or "none" for side in (baseline, contender))
    plans = [known[side[0].sha256] for side in (baseline, contender) if len(side) == 1 and side[0].sha256 in known]
    told = "; ".join(differences(*plans)) if len(plans) == 2 else ""
    return f"suites differ: {one} → {two}" + (f": {told}" if told else "")


_ENERGETIC = {"J", "W"}
"""Units of the metrics that come from power sensors."""


def notes_on(tested: Tested, family: int) -> list[str]:
    """Return all notes on a comparison; `family` is the number of comparisons made together."""
    a, b = tested.baseline, tested.contender
    notes = [*_too_few(tested, family), *_missing(tested), *_split(tested)]
    if tested.counted_by:
        notes.append(f"FLOPs are counted differently and cannot be compared: {', '.join(tested.counted_by)}")
    if tested.mostly_started:
        notes.append(f"no verdict: {tested.mostly_started}")
    profiled = tested.rules.level != "trial"
    metric = a.metric or b.metric
    energetic = metric is not None and not _ENERGETIC.isdisjoint(metric.unit.split("/"))
    rate = "" if profiled else "flop_per_J" if energetic else "flop_per_s"
    notes += diagnosis.differences(a.records, b.records, rate)
    if not profiled:
        notes += diagnosis.disturbed(a.records, b.records)
        notes += diagnosis.unsteady([*a.records, *b.records])
        notes += diagnosis.skewed([*a.records, *b.records])
        if energetic:
            notes += diagnosis.energies(a.records, b.records)
    else:
        notes += diagnosis.profiles((a.name, a.records), (b.name, b.records))
    if tested.method == "paired":
        notes += diagnosis.effects(
            np.array(list(tested.differences.values())),
            np.array([two.record.design.slot > one.record.design.slot for one, two in tested.pairs]),
            np.array([(one.log + two.log) / 2 for one, two in tested.pairs]),
        )
    elif tested.method.startswith("unpaired"):
        notes += [*diagnosis.drifting(a.name, a.logs), *diagnosis.drifting(b.name, b.logs)]
    return notes


def _too_few(tested: Tested, family: int) -> list[str]:
    """Report if there are too few trials for any verdict."""
    notes = []
    if tested.test is not None and _is_too_few(tested, family):
        alpha, of = tested.alpha / family, unit(tested.method)
        notes.append(f"{_cannot(tested.test.sizes, alpha, of)} whatever their values; {_least(alpha, of)}")
    return notes


def _is_too_few(tested: Tested, family: int) -> bool:
    """Return whether no values of so few trials could give a verdict."""
    return tested.test is not None and tested.test.least_p > tested.alpha / family


def _cannot(sizes: Sequence[int], alpha: float, unit: str) -> str:
    return f"{' and '.join(map(str, sizes))} {unit.removesuffix(_PER_SIDE)} cannot reach p < {alpha:.2g}"


def _least(alpha: float, unit: str) -> str:
    per_side = _PER_SIDE if unit.endswith(_PER_SIDE) else ""
    return f"at least {fewest(alpha, is_paired=not per_side)}{per_side} are needed"


def notes_on_mean(mean: Mean, verdict: Verdict, enough: int | None, alpha: float) -> list[str]:
    """Return how many rounds, trials or runs would decide an undecided mean; `alpha` is the level of this one test."""
    if verdict != "undecided":
        return []
    if mean.spread is None:
        return ["a side has a single trial; at least 2 per side are needed"]
    if mean.method in T_TESTS and mean.spread == 0:
        what = "runs" if mean.method == BY_RUN else "trials"
        return [f"all {what} have the same value, so there is no interval and no test"]
    if mean.method not in T_TESTS and mean.values < fewest(alpha, is_paired=mean.is_paired):
        sizes = [round(mean.values)] * (1 if mean.is_paired else 2)
        return [f"{_cannot(sizes, alpha, mean.unit)} whatever their values; {_least(alpha, mean.unit)}"]
    return [f"the mean is undecided; {likely(enough, mean.unit)}"]


def notes_on_cases(comparisons: Sequence[Comparison], tested: Sequence[Tested], family: int) -> list[str]:
    """Return why cases are undecided, whatever their mean, and how many rounds, trials or runs would decide them."""
    undecided = [
        (each, test)
        for each, test in zip(comparisons, tested, strict=True)
        if each.verdict == "undecided" and test.test is not None
    ]
    if not undecided:
        return []
    said = f"{part(len(undecided), len(comparisons), 'case', 'is', 'are')} undecided"
    few = [test for _, test in undecided if _is_too_few(test, family)]
    units = {unit(test.method) for _, test in undecided}
    of = units.pop() if len(units) == 1 else "trials per side"
    if few and len(few) == len(undecided):
        sizes = ((test.test.sizes, unit(test.method)) for test in few if test.test)
        smallest, of = min(sizes, key=lambda each: min(each[0]))
        alpha = few[0].alpha / family
        reason = f"{_cannot(smallest, alpha, of)}, as {family} comparisons together require; {_least(alpha, of)}"
        return [f"{said}: {reason}"]
    several = [each.enough for each, _ in undecided]
    return [f"{said}; {likely(None if None in several else max(filter(None, several)), of)} all of them"]


def _split(tested: Tested) -> list[str]:
    """Report rounds that were begun on one host or in one allocation, and ended in another."""
    sides = [
        {(run, number): where for run, number, where in each.rounds} for each in (tested.baseline, tested.contender)
    ]
    split = [key for key in sides[0].keys() & sides[1].keys() if sides[0][key] != sides[1][key]]
    return [f"{count(len(split), 'round was', 'rounds were')} cut: each side was measured elsewhere"] if split else []


def _missing(tested: Tested) -> list[str]:
    """Report trials that have no value or are left out, and why."""
    notes = []
    for sample in (tested.baseline, tested.contender):
        errors = [record.error for record in sample.all if record.error]
        if errors:
            notes.append(f"{sample.name}: {part(len(errors), len(sample.all), 'trial')} failed ({errors[0].message})")
        if missing := sample.missing(tested.rules.metric):
            notes.append(missing)
        if tested.method == "paired" and len(sample.trials) > len(tested.differences):
            left = len(sample.trials) - len(tested.differences)
            notes.append(f"{sample.name}: {count(left, 'trial')} left out: the other side has none in the same rounds")
    if tested.method == "unpaired by run":
        doubt = few_runs(tested.method, (len(tested.baseline.runs), len(tested.contender.runs)))
        notes += [doubt] if doubt else []
    return notes
