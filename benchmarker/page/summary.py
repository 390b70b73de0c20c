"""The title of the page, its numbers of trials, and the table of results."""

from __future__ import annotations

from benchmarker.comparing.diagnosis import emulated, skewed
from benchmarker.formatting import count, every, sentence, some
from benchmarker.page.page_model import Section, searchable
from benchmarker.page.study import Study, days, named
from benchmarker.records.factors import varying
from benchmarker.tables.results import counts, metrics
from benchmarker.tables.table import Table

MOST_SIDES = 4
MOST_FACTORS = 4


def title(study: Study) -> str:
    """Return the title: problem, mode and precision if all trials share them, the problems otherwise."""
    if study.title:
        return study.title
    kinds = {(record.case.problem, record.case.mode, record.case.precision) for record in study.records}
    problems = sorted({problem for problem, _, _ in kinds})
    if len(kinds) == 1:
        return ", ".join(kinds.pop())
    return every(problems)


def subtitle(study: Study) -> str:
    """Return what is compared, the numbers of trials, failures, configurations and runs, and the dates."""
    records = study.records
    failed = sum(record.error is not None for record in records)
    runs = len({record.run_id for record in records})
    parts = [
        *filter(None, [_compared(study)]),
        count(len(records), "trial"),
        f"{failed} failed" if failed else "none failed",
        count(len(study.groups), "configuration"),
        count(runs, "run"),
        days(records),
    ]
    return " · ".join(parts)


def _compared(study: Study) -> str:
    """Return which sides are compared, by the factors that name them, and which factors vary within each side."""
    if not study.matches:
        return ""
    of = {part.partition("=")[0] for match in study.matches for part in match.contender.name.split()} & study.apart
    within = [name for name in varying([group.factors for group in study.groups]) if name not in study.apart]
    others = f" and {count(len(within) - MOST_FACTORS, 'other factor')}" if len(within) > MOST_FACTORS else ""
    values = "problems" if "problem" in within else f"values of {', '.join(within[:MOST_FACTORS])}{others}"
    cases = f", each with several {values}" if within else ""
    return f"{' and '.join(sorted(of)) or 'results'} compared: {some(list(study.sides), MOST_SIDES)}{cases}"


def results(study: Study) -> Section:
    """Return the table of configurations with their headline metrics, medians over trials."""
    skew = skewed(study.records)
    table = Table.of_columns(
        [
            *named(study, study.groups),
            *metrics([group.ok for group in study.groups], study.derive, skew=skew),
            *counts(study.groups),
        ]
    )
    notes = map(sentence, (*skew, *emulated(study.records)))
    caption = " ".join(["Medians over the successful trials.", *notes])
    return Section("results", "Results", (), (searchable("Configurations", table, caption),))
