"""The data behind a page: records by case and side, their metrics, and their verdicts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from statistics import median

from benchmarker.comparing.formatting import short
from benchmarker.comparing.matching import Match
from benchmarker.comparing.results import Family, Rules
from benchmarker.files.atomic import Fault
from benchmarker.formatting import shortened
from benchmarker.hooks import names
from benchmarker.hooks.cases import Cases, Configuration
from benchmarker.hooks.metrics import Derive
from benchmarker.procurement.accept import Acceptance
from benchmarker.procurement.completeness import Completeness
from benchmarker.procurement.score import Scores
from benchmarker.records.ceilings import Ceilings
from benchmarker.records.factors import Factors, factors_of, text, varying
from benchmarker.records.load import Load
from benchmarker.records.record import Record
from benchmarker.roofline.model import Roofline, rooflines
from benchmarker.stats.median_interval import MIN_BLOCKS_FOR_INTERVAL
from benchmarker.tables.table import Column, Filled

MOST_DRAWN = 40
"""Largest number of configurations drawn in a figure; its data table has all."""
MEDIAN = (
    "the median over the trials of a configuration, with its 95% interval if there are "
    f"{MIN_BLOCKS_FOR_INTERVAL} trials or more"
)
"""What a mark of a figure is, in words."""
WIDEST_NAME, WIDEST_SHARED = 160, 400
"""Longer names of cases, and of what they share, are shortened in the middle."""


@dataclass(frozen=True)
class Group(Configuration):
    """The trials of one case on one side: one bar, box or point. `series` is the number of the side, and its colour.

    `alone` if the page has no other case, so that the side says which group it is.
    """

    case: str
    side: str
    series: int
    alone: bool

    @property
    def title(self) -> str:
        """The case, unless the side says it all."""
        return "" if self.alone and self.side else self.case

    @property
    def label(self) -> str:
        """The case and the side in a few words."""
        return " ".join(filter(None, (self.title, self.side)))


@dataclass(frozen=True)
class Study:
    """All data of the page, read and judged; `unjudged` is the reason why there is no comparison.

    `results` holds the records by the result that they were read from, `planned` what their plans ask for beyond them.
    `telemetry` and `tables` are the time series and event tables next to the records, by trial. `scores` are those of
    `suite score`, or None with the reason in `unscored`; `acceptances` are those of `suite accept`, by result.
    `loads` are those of `serve-load` among the results. `origins` are the path of each result and the SHA-256 of its
    records, which archives have not.
    """

    results: Sequence[tuple[str, Sequence[Record]]]
    matches: Sequence[Match]
    family: Family | None
    derive: Derive
    rules: Rules = field(default_factory=Rules)
    unjudged: str = ""
    faults: Sequence[Fault] = ()
    planned: Completeness = field(default_factory=lambda: Completeness((), (), ()))
    telemetry: Mapping[str, Path] = field(default_factory=dict)
    tables: Mapping[str, Path] = field(default_factory=dict)
    ceilings: Ceilings = field(default_factory=Ceilings)
    scores: Scores | None = None
    unscored: str = ""
    acceptances: Sequence[tuple[str, Acceptance]] = ()
    loads: Sequence[Load] = ()
    title: str | None = None
    origins: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @cached_property
    def records(self) -> list[Record]:
        """Every trial once, in order of time."""
        once = {record.trial_id: record for _, records in self.results for record in records}
        return [once[trial] for trial in sorted(once)]

    @cached_property
    def sides(self) -> dict[str, list[Group]]:
        """The groups of each side, the baseline first; without comparisons, of each result or framework."""
        return grouped(sorted(self.groups, key=attrgetter("series")), attrgetter("side"))

    @cached_property
    def cases(self) -> dict[str, list[Group]]:
        """The groups of each case, one for each of its sides."""
        return grouped(self.groups, attrgetter("case"))

    @cached_property
    def groups(self) -> list[Group]:
        """Every case on every side, in the order of plans; the sides of a case are next to each other."""
        return self._grouped[0]

    @property
    def shared(self) -> str:
        """What all cases have in common, in words."""
        return self._grouped[1]

    @cached_property
    def _grouped(self) -> tuple[list[Group], str]:
        sides, cases = self._matched
        results = {record.trial_id: result for result, records in self.results for record in records}
        parts: dict[str, list[Record]] = {}
        for record in self.records:
            side = sides.get(record.trial_id)
            if side is None:
                side = results[record.trial_id] if len(self.results) > 1 else self._similar(record, set(sides.values()))
            parts.setdefault(side, []).append(record)
        order = {side: number for number, side in enumerate(dict.fromkeys([*sides.values(), *parts]))}
        found: dict[str, list[tuple[str, Factors, tuple[Record, ...]]]] = {}
        for side in sorted(parts, key=lambda side: order[side]):
            for each in Cases.of(parts[side]):
                first = each.records[0].trial_id
                found.setdefault(cases.get(first, first), []).append((side, each.factors, each.records))
        titles = [names.common_words(names.title(case) for _, case, _ in of) for of in found.values()]
        every = [(title, *each) for title, of in zip(titles, found.values(), strict=True) for each in of]
        own = [names.title(case) for _, _, case, _ in every]
        titled = [title for title, *_ in every]
        named = names.names([case for _, _, case, _ in every], self.apart, titled if titled != own else ())
        groups = [
            Group(case, records, shortened(name or title, WIDEST_NAME), short(side), order[side], len(found) == 1)
            for name, (title, side, case, records) in zip(named.each, every, strict=True)
        ]
        return groups, shortened(named.shared, WIDEST_SHARED)

    @cached_property
    def apart(self) -> set[str]:
        """The factors that name sides and not cases: those in which matches differ, frameworks if there is no match."""
        if not self.matches:
            differ = varying([factors_of(record.case) for record in self.records]) if len(self.results) == 1 else []
            return {"framework", "execution"}.intersection(differ) if "framework" in differ else set()
        return {
            name
            for match in self.matches
            for name in varying([factors_of(side.records[0].case) for side in (match.baseline, match.contender)])
        }

    @cached_property
    def _matched(self) -> tuple[dict[str, str], dict[str, str]]:
        """The side and the case of each compared trial; a case is called after the first trial of its baseline."""
        sides, cases = {}, {}
        for match in self.matches:
            for side in (match.baseline, match.contender):
                for record in side.records:
                    sides[record.trial_id] = side.name
                    cases[record.trial_id] = match.baseline.records[0].trial_id
        return sides, cases

    def _similar(self, record: Record, sides: Collection[str]) -> str:
        """Return the side that a trial without a counterpart would be on."""
        known = factors_of(record.case)
        own = [f"{name}={text(known[name])}" for name in known if name in self.apart]
        return next((side for side in sides if {*side.split()} <= {*own}), " ".join(own))

    def case_of(self, match: Match) -> str:
        """Return the name of the case of a match."""
        return self._names[match.baseline.records[0].trial_id]

    @cached_property
    def _names(self) -> dict[str, str]:
        return {record.trial_id: group.case for group in self.groups for record in group.records}

    @cached_property
    def rooflines(self) -> tuple[list[tuple[Group, Roofline]], list[str]]:
        """The groups that have a roofline, and the reasons why others have none."""
        found: list[tuple[Group, Roofline]] = []
        lacking: dict[str, None] = {}
        for group in self.groups:
            several, reasons = rooflines([group], self.ceilings)
            found += [(group, each) for each in several]
            lacking |= dict.fromkeys(reasons)
        return found, list(lacking)

    def values(self, group: Group, metric: str) -> list[float]:
        """Return the values of a metric over the trials of a configuration, leaving out trials without one."""
        found = (self.derive(record).get(metric) for record in group.ok)
        return [each.value for each in found if each is not None and each.value is not None]

    def median(self, group: Group, metric: str) -> float | None:
        """Return the median over trials, or None if no trial has a value."""
        values = self.values(group, metric)
        return median(values) if values else None

    def reasons(self, metric: str) -> list[str]:
        """Return why successful trials have no value of a metric, each reason once."""
        found = (self.derive(record).get(metric) for group in self.groups for record in group.ok)
        return list(
            dict.fromkeys(each.reason for each in found if each is not None and each.value is None and each.reason)
        )


def grouped(groups: Iterable[Group], name: Callable[[Group], str]) -> dict[str, list[Group]]:
    """Return groups by a name, in their order."""
    found: dict[str, list[Group]] = {}
    for group in groups:
        found.setdefault(name(group), []).append(group)
    return found


def named(study: Study, groups: Sequence[Group]) -> list[Filled]:
    """Return the columns that name cases and their sides in a table, without those that are empty."""
    side = [(Column("side"), [group.side for group in groups])] if any(study.sides) else []
    return [(Column("case"), [group.case for group in groups]), *side]


def days(records: Sequence[Record]) -> str:
    """Return the first and the last day on which records were made, or the only one."""
    found = sorted({record.started_at[:10] for record in records})
    return found[0] if len(found) == 1 else f"{found[0]} to {found[-1]}"


def panels(study: Study) -> list[tuple[str, str, list[Group]]]:
    """Return the groups of each problem, with what to add to the key and to the title of its figure."""
    found = grouped(study.groups, lambda group: str(group.factors["problem"]))
    if len(found) == 1:
        return [("", "", study.groups)]
    return [(f"-{number}", f", {problem}", groups) for number, (problem, groups) in enumerate(found.items())]


def row_names(rows: Sequence[tuple[str, Group]]) -> tuple[str, ...]:
    """Return the names of the rows of a figure; of rows in succession with the same name, the others have the side."""
    names = [None, *(name for name, _ in rows)]
    return tuple(
        group.side if name == last and group.side else ": ".join(filter(None, (name, group.side)))
        for last, (name, group) in zip(names, rows, strict=False)
    )


def beside(results: Sequence[Path], ending: str) -> dict[str, Path]:
    """Return the files with this ending next to the records of results, by trial."""
    found: dict[str, Path] = {}
    for result in results:
        files = sorted(result.rglob(f"*{ending}")) if result.is_dir() else [result.with_name(result.stem + ending)]
        found |= {file.name.removesuffix(ending): file for file in files if file.exists()}
    return found
