"""What the page is about: records by result and configuration, their metrics, and the verdicts on them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from benchmarker.records.configurations import Factors, Value, configurations, environment_of, label, text, varying
from benchmarker.roofline.model import rooflines

if TYPE_CHECKING:
    from benchmarker.api.metric import Metric
    from benchmarker.comparing.matching import Match
    from benchmarker.comparing.results import Family, Rules
    from benchmarker.files.atomic import Fault
    from benchmarker.hooks.metrics import Derive
    from benchmarker.records.ceilings import Ceilings
    from benchmarker.records.record import Record
    from benchmarker.roofline.model import Roofline

MOST_DRAWN = 40
"""So many configurations are drawn in a figure; the data behind it have all."""
_BARE = ("framework", "problem", "result")
"""Factors whose values need no name beside them."""


def cached(derive: Derive) -> Derive:
    """Derives the metrics of each trial once."""
    found: dict[str, Mapping[str, Metric]] = {}

    def once(record: Record) -> Mapping[str, Metric]:
        if record.trial_id not in found:
            found[record.trial_id] = derive(record)
        return found[record.trial_id]

    return once


@dataclass(frozen=True, slots=True)
class Group:
    """The trials of one configuration in one result: what is one bar, box or point. `series` chooses its colour."""

    label: str
    factors: Factors
    records: tuple[Record, ...]
    series: int
    series_name: str

    @property
    def ok(self) -> list[Record]:
        """Its trials that came through."""
        return [record for record in self.records if record.error is None]


@dataclass(frozen=True)
class Study:
    """All that the page tells of, read and judged; `unjudged` says why there is no comparison.

    `results` are the records by the result that they were read from; `axis` is what was asked for with --by.
    `telemetry` and `tables` are the time series and event tables beside the records, by trial.
    """

    results: Sequence[tuple[str, Sequence[Record]]]
    faults: Sequence[Fault]
    matches: Sequence[Match]
    family: Family | None
    unjudged: str
    derive: Derive
    rules: Rules
    telemetry: Mapping[str, Path]
    tables: Mapping[str, Path]
    ceilings: Ceilings
    axis: str | None = None
    title: str | None = None

    @cached_property
    def records(self) -> list[Record]:
        """Every trial once, in order of time."""
        once = {record.trial_id: record for _, records in self.results for record in records}
        return [once[trial] for trial in sorted(once)]

    @cached_property
    def groups(self) -> list[Group]:
        """Configurations in the order of results and plans."""
        found: list[tuple[dict[str, Value], tuple[Record, ...]]] = []
        for result, records in self.results:
            more = {"result": result} if len(self.results) > 1 else {}
            for value, of in self._by_axis(records).items():
                for each in configurations(of):
                    apart = {self.axis: value} if self.axis and value else {}
                    found.append(({**more, **apart, **each.factors}, each.records))
        names = telling([factors for factors, _ in found])
        labels = [named(factors, names) or str(factors["problem"]) for factors, _ in found]
        key = next((name for name in ("framework", "result", self.axis) if name in names), None)
        values = list(dict.fromkeys(text(factors.get(key)) if key else "" for factors, _ in found))
        colours = [text(factors.get(key)) if key else "" for factors, _ in found]
        return [
            Group(label, factors, records, values.index(colour), colour or "trials")
            for label, (factors, records), colour in zip(labels, found, colours, strict=True)
        ]

    def _by_axis(self, records: Sequence[Record]) -> dict[str, list[Record]]:
        """Records by the value of an axis that is no factor of the case, as the host; all under "" where it is one."""
        found: dict[str, list[Record]] = {}
        for record in records:
            around = {name.replace("-", "_"): each for name, each in environment_of(record).items()}
            axis = (self.axis or "").replace("-", "_")
            found.setdefault(text(around[axis]) if axis in around else "", []).append(record)
        return found

    @cached_property
    def rooflines(self) -> list[tuple[str, list[Roofline], list[str]]]:
        """Each result with its configurations under their roofs, and why others have none."""
        return [(result, *rooflines(records, self.ceilings)) for result, records in self.results]

    def values(self, group: Group, metric: str) -> list[float]:
        """The metric of each trial of a configuration that has one."""
        found = (self.derive(record).get(metric) for record in group.ok)
        return [each.value for each in found if each is not None and each.value is not None]

    def median(self, group: Group, metric: str) -> float | None:
        """The median over trials; None where none has a value."""
        values = self.values(group, metric)
        return median(values) if values else None

    def reasons(self, metric: str) -> list[str]:
        """Why trials that came through have no value of a metric, each reason once."""
        found = (self.derive(record).get(metric) for group in self.groups for record in group.ok)
        return list(
            dict.fromkeys(each.reason for each in found if each is not None and each.value is None and each.reason)
        )


def telling(several: Sequence[Factors]) -> list[str]:
    """The fewest factors that tell these apart, the framework among them where it varies."""
    names = varying(several)
    needed = list(names)
    kinds = len({_key(each, names) for each in several})
    for name in reversed(names):
        fewer = [each for each in needed if each != name]
        if name != "framework" and len({_key(each, fewer) for each in several}) == kinds:
            needed = fewer  # as `compile`, which goes with the framework
    return needed


def named(these: Factors, names: Sequence[str]) -> str:
    """Factors as a short name: `jax m=256`."""
    return " ".join(text(these.get(name)) if name in _BARE else f"{name}={text(these.get(name))}" for name in names)


def short(name: str) -> str:
    """The name of a side or a configuration without the words that its values do not need."""
    return re.sub(r"(^|\s)(framework|problem)=(?=\S)", r"\1", name)


def about(case: Factors, *sides: str) -> str:
    """What a comparison is about: its case, then the sides that are named."""
    return " ".join(filter(None, (short(label(case, list(case))), *map(short, sides))))


def _key(these: Factors, names: Sequence[str]) -> tuple[Value, ...]:
    return tuple(these.get(name) for name in names)


def beside(results: Sequence[Path], ending: str) -> dict[str, Path]:
    """The files of one kind that stand beside the records of results, by trial."""
    found: dict[str, Path] = {}
    for result in results:
        files = sorted(result.rglob(f"*{ending}")) if result.is_dir() else [result.with_name(result.stem + ending)]
        found |= {file.name.removesuffix(ending): file for file in files if file.exists()}
    return found


def drawn(groups: Sequence[Group]) -> tuple[list[Group], str]:
    """Those that a figure draws, and what it says of the others."""
    if len(groups) <= MOST_DRAWN:
        return list(groups), ""
    return list(
        groups[:MOST_DRAWN]
    ), f"The first {MOST_DRAWN} of {len(groups)} configurations are drawn; the data have all."
