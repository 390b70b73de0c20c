"""Metrics of a stored record, from every registered `metric.*` plugin."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, ItemsView, Iterable, Iterator, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any

from msgspec import structs

from benchmarker.api.errors import UserError
from benchmarker.api.metric import Metric
from benchmarker.formatting import nearest
from benchmarker.hooks import registry
from benchmarker.records import ceilings
from benchmarker.records.ceilings import Ceilings
from benchmarker.records.record import Record

Derive = Callable[["Record"], Mapping[str, "Metric"]]
"""Derives all metrics of a record, by name."""


def load_metrics(results: Iterable[Path] = ()) -> Derive:
    """Load the metric plugins once; the returned function derives all metrics of a record, by name.

    It uses the ceilings in the user's cache and those stored with the records of `results`. What a plugin cannot derive
    is null with the reason and the plugin's address; the other metrics are not affected. Of the first record, each
    plugin derives its metrics at once; of others, when one of them is asked for.
    """
    known = ceilings.known(results)
    sources = [_Source(address) for address in reversed(registry.registered("metric"))]  # tokens and throughput first
    seen = False

    def derive(record: Record) -> Mapping[str, Metric]:
        nonlocal seen
        metrics = _Derived(record, known, sources)
        if not seen:
            len(metrics)
            seen = True
        return metrics

    return derive


def refuse_unknown(
    names: Iterable[str], records: Sequence[Record], derive: Derive, also: Collection[str] = (), option: str = ""
) -> None:
    """Raise `UserError` with the nearest names if no record has a metric with one of these names.

    Which metrics a record has depends on its problem, and on what was counted. `also` are other names that are good,
    and `option` is the one that gave the names.
    """
    for name in names:
        if name not in also and not any(name in derive(record) for record in records):
            known = list(dict.fromkeys([*also, *(each for record in records for each in derive(record))]))
            given = option and f"{option}={name}: "
            raise UserError(f"{given}no metric is named {name!r}; {nearest(name, known)}")


def metric_of(record: Record, name: str, metrics: Mapping[str, Metric]) -> Metric:
    """Return one of the metrics of a record, null with the reason if records like it have no such metric."""
    none = f"{record.case.problem} has no {name}, or it was not asked for"
    return metrics.get(name) or Metric(None, "", "lower", none)


def cached(derive: Derive) -> Derive:
    """Return a `derive` that computes the metrics of each trial only once."""
    by_trial: dict[str, Mapping[str, Metric]] = {}

    def once(record: Record) -> Mapping[str, Metric]:
        if record.trial_id not in by_trial:
            by_trial[record.trial_id] = derive(record)
        return by_trial[record.trial_id]

    return once


class _Derived(Mapping[str, Metric]):
    """The metrics of one record; a plugin derives its own when one of them is asked for."""

    def __init__(self, record: Record, known: Ceilings, sources: Sequence[_Source]) -> None:
        self._record = record
        self._known = known
        self._left = list(sources)
        self._parts: dict[_Source | None, dict[str, Metric]] = {source: {} for source in sources}

    def __getitem__(self, name: str) -> Metric:
        for part in self._parts.values():
            if name in part:
                return part[name]
        if not self._left:
            raise KeyError(name)
        self._derive(next((source for source in self._left if name in source.names), self._left[0]))
        return self[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def items(self) -> ItemsView[str, Metric]:
        return self._all().items()

    def __len__(self) -> int:
        return len(self._all())

    def _all(self) -> dict[str, Metric]:
        while self._left:
            self._derive(self._left[0])
        if None not in self._parts:
            self._parts = {None: {name: metric for part in self._parts.values() for name, metric in part.items()}}
        return self._parts[None]

    def _derive(self, source: _Source) -> None:
        self._left.remove(source)
        part = source.derive(self._record, self._known)
        for other in self._parts.values():
            if twice := part.keys() & other.keys():
                raise UserError(f"two metric plugins derive {', '.join(sorted(twice))}; uninstall one of them")
        self._parts[source] = part


class _Source:
    """One metric plugin, and the last metrics that it derived, whose names stand for it when it fails."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._hook = registry.load([address]).hook
        self._last: dict[str, Metric] = {address.partition(".")[2]: Metric(None, "1", "higher")}

    @property
    def names(self) -> Collection[str]:
        """The names of the last metrics."""
        return self._last

    def derive(self, record: Record, known: Ceilings) -> dict[str, Metric]:
        try:
            (metrics,) = self._hook.derive_metrics(record=record, ceilings=known)
            self._last = {_name(name): self._valid(metric) for name, metric in metrics.items()}
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a plugin's mistake costs its metrics alone
            why = " ".join(f"{self.address} failed: {type(error).__name__}: {error}".split())
            return {name: structs.replace(metric, value=None, reason=why) for name, metric in self._last.items()}
        return self._last

    def _valid(self, metric: Any) -> Metric:
        """Return the metric, null if its value is not a finite number; raises TypeError if it is not a metric."""
        if not isinstance(metric, Metric) or not isinstance(metric.unit, str):
            raise TypeError(f"{metric!r} is not a Metric")
        if metric.value is None or _is_finite(metric.value):
            return metric
        return structs.replace(metric, value=None, reason=f"{self.address} gave {str(metric.value)[:40]}")


def _is_finite(value: Any) -> bool:
    try:
        return isinstance(value, (float, Real)) and math.isfinite(value)  # float first: the test for Real is slow
    except OverflowError:  # an integer that no float can hold
        return False


def _name(name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError(f"{name!r} is not the name of a metric")
    return name
