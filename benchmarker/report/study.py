"""The data behind a page: records by result and configuration, their metrics, and their verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from benchmarker.comparing.formatting import short
from benchmarker.comparing.profiled_parts import AXES
from benchmarker.hooks.names import names
from benchmarker.records.configurations import Factors, Value, configurations, environment_of, label, text, varying
from benchmarker.roofline.model import rooflines

if TYPE_CHECKING:
    from benchmarker.comparing.matching import Match
    from benchmarker.comparing.results import Comparison, Family, Rules
    from benchmarker.files.atomic import Fault
    from benchmarker.hooks.metrics import Derive
    from benchmarker.records.ceilings import Ceilings
    from benchmarker.records.configurations import Configuration
    from benchmarker.records.record import Record
    from benchmarker.roofline.model import Roofline

MOST_DRAWN = 40
"""Largest number of configurations drawn in a figure; its data table has all."""
_BARE = ("framework", "problem", "result")
"""Factors whose values are shown without the name."""


@dataclass(frozen=True, slots=True)
class Group:
    """The trials of one configuration in one result: one bar, box or point. `series` determines its colour."""

    label: str
    factors: Factors
    records: tuple[Record, ...]
    series: int
    series_name: str

    @property
    def ok(self) -> list[Record]:
        """Its successful trials."""
        return [record for record in self.records if record.error is None]


@dataclass(frozen=True)
class Study:
    """All data of the page, read and judged; `unjudged` is the reason why there is no comparison.

    `results` holds the records by the result that they were read from; `axis` is the value of --by. `telemetry` and
    `tables` are the time series and event tables next to the records, by trial.
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
        found: list[tuple[dict[str, Value], Configuration]] = []
        for result, records in self.results:
            more = {"result": result} if len(self.results) > 1 else {}
            for value, of in self._by_axis(records).items():
                apart = {self.axis: value} if self.axis and value else {}
                found += [({**more, **apart}, each) for each in configurations(of)]
        named = names([each.factors for _, each in found])
        labels = [
            " ".join(filter(None, [*(short(f"{name}={value}") for name, value in more.items()), own]))
            for (more, _), own in zip(found, named.each, strict=True)
        ]
        several = [{**more, **each.factors} for more, each in found]
        differ = varying(several)
        key = next((name for name in ("framework", "result", self.axis) if name in differ), None)
        colours = [text(factors.get(key)) if key else "" for factors in several]
        values = list(dict.fromkeys(colours))
        return [
            Group(label or whole, factors, each.records, values.index(colour), colour or "trials")
            for label, whole, factors, (_, each), colour in zip(
                labels, named.whole, several, found, colours, strict=True
            )
        ]

    def _by_axis(self, records: Sequence[Record]) -> dict[str, list[Record]]:
        """Return records by the value of an axis outside the case, such as the host; all under "" for other axes."""
        found: dict[str, list[Record]] = {}
        for record in records:
            around = {name.replace("-", "_"): each for name, each in environment_of(record).items()}
            axis = (self.axis or "").replace("-", "_")
            found.setdefault(text(around[axis]) if axis in around else "", []).append(record)
        return found

    @cached_property
    def rooflines(self) -> list[tuple[str, list[Roofline], list[str]]]:
        """Each result with the rooflines of its configurations, and the reasons why others have none."""
        return [(result, *rooflines(records, self.ceilings)) for result, records in self.results]

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


def telling(several: Sequence[Factors]) -> list[str]:
    """Return the fewest factors that distinguish these cases, including the framework if it varies."""
    names = varying(several)
    needed = list(names)
    kinds = len({_key(each, names) for each in several})
    for name in reversed(names):
        fewer = [each for each in needed if each != name]
        if name != "framework" and len({_key(each, fewer) for each in several}) == kinds:
            needed = fewer  # such as `compile`, which depends on the framework
    return needed


def named(these: Factors, names: Sequence[str]) -> str:
    """Return factors as a short name: `jax m=256`."""
    return " ".join(text(these.get(name)) if name in _BARE else f"{name}={text(these.get(name))}" for name in names)


def about(each: Comparison, *sides: str) -> str:
    """Return the subject of a comparison: its case, the part of a step if it is one, then the given sides."""
    return " ".join(filter(None, (each.name, label(each.case, AXES["kernel"]), *map(short, sides))))


def _key(these: Factors, names: Sequence[str]) -> tuple[Value, ...]:
    return tuple(these.get(name) for name in names)


def beside(results: Sequence[Path], ending: str) -> dict[str, Path]:
    """Return the files with this ending next to the records of results, by trial."""
    found: dict[str, Path] = {}
    for result in results:
        files = sorted(result.rglob(f"*{ending}")) if result.is_dir() else [result.with_name(result.stem + ending)]
        found |= {file.name.removesuffix(ending): file for file in files if file.exists()}
    return found


def drawn(groups: Sequence[Group]) -> tuple[list[Group], str]:
    """Return the groups that a figure draws, and the note on the others."""
    if len(groups) <= MOST_DRAWN:
        return list(groups), ""
    return list(
        groups[:MOST_DRAWN]
    ), f"Only the first {MOST_DRAWN} of {len(groups)} configurations are drawn; the data table has all."
