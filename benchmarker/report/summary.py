"""The top of the page: what was measured, on what, the verdicts and the warnings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarker.comparing.formatting import measure, ratio, short
from benchmarker.comparing.results import GeometricMean
from benchmarker.records.configurations import DEFAULTS, text, varying
from benchmarker.report.page_model import Card, Column, Listing, Section, Table
from benchmarker.report.study import about
from benchmarker.report.verdicts import gain
from benchmarker.roofline.model import BEYOND, beyond

if TYPE_CHECKING:
    from benchmarker.comparing.results import Comparison, Family
    from benchmarker.records.record import Record
    from benchmarker.report.study import Study

MOST_CARDS = 4
MOST_REASONS = 3
FEW_TRIALS = 3
"""With fewer on a side, the card of an undecided comparison states the numbers of trials."""


def title(study: Study) -> str:
    """Return the title: problem, mode and precision if all trials share them, the problems otherwise."""
    if study.title:
        return study.title
    kinds = {(record.case.problem, record.case.mode, record.case.precision) for record in study.records}
    problems = sorted({problem for problem, _, _ in kinds})
    if len(kinds) == 1:
        return ", ".join(kinds.pop())
    return " and ".join([", ".join(problems[:-1]), problems[-1]] if len(problems) > 1 else problems)


def subtitle(study: Study) -> str:
    """Return the numbers of trials, failures, configurations and runs, and the dates."""
    records = study.records
    failed = sum(record.error is not None for record in records)
    days = sorted({record.started_at[:10] for record in records})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    runs = len({record.run_id for record in records})
    parts = [
        _count(len(records), "trial"),
        f"{failed} failed" if failed else "none failed",
        _count(len(study.groups), "configuration"),
        _count(runs, "run"),
        when,
    ]
    return " · ".join(parts)


def shared(study: Study) -> list[tuple[str, str]]:
    """Return what all trials have in common: host, processor, device, and factors that are not at their default."""
    cases = [group.factors for group in study.groups]
    differ = varying(cases)
    found = [
        (name.replace("_", " "), text(value))
        for name, value in cases[0].items()
        if name not in (*differ, "device") and value is not None and value != DEFAULTS.get(name)
    ]
    results: list[tuple[str, set[str]]] = [
        ("host", {record.machine.host for record in study.records}),
        ("processor", {record.machine.cpu.model for record in study.records}),
        ("measured on", {_device(record) for record in study.records}),
    ]
    return [*((name, values.pop()) for name, values in results if len(values) == 1), *found]


def _device(record: Record) -> str:
    """Return the device that ran the case; a processor has its own row."""
    if record.device is None or record.device.platform == "cpu":
        return record.case.device
    return f"{record.device.platform}: {record.device.name}"


def warnings(study: Study) -> list[str]:
    """Return the warnings: unreadable files, failed trials, too few trials for a verdict, work above its roof."""
    found = []
    if study.faults:
        found.append(
            f"{_count(len(study.faults), 'file')} could not be read and {_is(len(study.faults))} not included."
        )
    failed = sum(record.error is not None for record in study.records)
    if failed:
        found.append(f"{failed} of {_count(len(study.records), 'trial')} failed; all figures are based on the others.")
    if study.family is None:
        found.append(f"Nothing is compared: {study.unjudged}.")
    elif all(each.method == "none" for each in study.family.comparisons):
        reasons = list(dict.fromkeys(reason for each in study.family.comparisons for reason in _untested(each)))
        more = f"; and {len(reasons) - MOST_REASONS} more" if len(reasons) > MOST_REASONS else ""
        found.append(f"No verdict is possible: {'; '.join(reasons[:MOST_REASONS])}{more}.")
    if beyond([each for _, several, _ in study.rooflines for each in several]):
        found.append(f"{BEYOND[0].upper()}{BEYOND[1:]}.")
    return found


def _untested(each: Comparison) -> list[str]:
    """Return why a comparison has no test: the notes on a side without a value, or that there are too few trials."""
    if each.ratio is None:
        empty = [name for name, trials in zip((each.baseline, each.contender), each.trials, strict=True) if trials == 0]
        return [short(note) for note in each.notes if note.startswith(tuple(f"{name}: " for name in empty))]
    few = "one trial on a side" if min(each.trials) < 2 else "one round with trials of both sides"
    return [f"with only {few}, the variation between processes is unknown"]


def cards(study: Study) -> list[Card]:
    """Return the verdicts for the top: geometric means if there are any, comparisons otherwise; counts if many."""
    family = study.family
    if family is None:
        return [Card("none", "No comparison", "-", study.unjudged)]
    judged: Sequence[Comparison | GeometricMean] = family.geometric_means or family.comparisons
    if len(judged) <= MOST_CARDS:
        return [_card(each, family) for each in judged]
    counts = Counter(each.verdict for each in family.comparisons)
    first = family.comparisons[0]
    return [
        Card(verdict, measure(first.metric), str(count), f"of {len(family.comparisons)} comparisons")
        for verdict, count in counts.most_common()
    ]


def _card(each: Comparison | GeometricMean, family: Family) -> Card:
    figure, _, interval = ratio(each).partition(" ")
    first = next((one for one in family.comparisons if one.ratio is not None), family.comparisons[0])
    if each.ratio is None:
        detail = f"a side has no {measure(first.metric)}"
    else:
        side = "below" if each.better == "lower" else "above"
        detail = f"ratio of the {measure(first.metric)}: {side} 1 is {gain(first)}"
        detail += f"; {100 * each.level:.3g}% interval {interval}" if each.low is not None else "; no interval"
    sides = f"{short(each.contender)} over {short(each.baseline)}"
    if isinstance(each, GeometricMean):
        cases = [one for one in family.comparisons if (one.baseline, one.contender) == (each.baseline, each.contender)]
        counts = Counter(one.verdict for one in cases).most_common()
        more = f"geometric mean of {each.cases} cases"
        detail += f"; cases: {', '.join(f'{count} {verdict}' for verdict, count in counts)}"
    else:
        more = about(each)
        if each.verdict == "undecided" and each.ratio is not None and min(each.trials) < FEW_TRIALS:
            detail += "; only {} and {} trials".format(*each.trials)
    return Card(each.verdict, ", ".join(filter(None, (sides, more))), figure, detail)


def results(study: Study) -> Section:
    """Return the table of configurations with their headline metrics, medians over trials."""
    names: dict[str, str] = {}
    for group in study.groups:
        for record in group.ok:
            for name, metric in study.derive(record).items():
                if metric.headline and metric.value is not None:
                    names.setdefault(name, metric.unit)
    columns = (
        Column("configuration"),
        *(Column(name, unit, numeric=True) for name, unit in names.items()),
        Column("trials", numeric=True),
        Column("failed", numeric=True),
    )
    rows = [
        (
            group.label,
            *(study.median(group, name) for name in names),
            len(group.records),
            len(group.records) - len(group.ok),
        )
        for group in study.groups
    ]
    table = Table(columns, tuple(rows))
    caption = "Medians over the successful trials."
    return Section("results", "Results", (), (Listing("Configurations", table, caption, searched=len(rows) > 10),))


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _is(number: int) -> str:
    return "is" if number == 1 else "are"
