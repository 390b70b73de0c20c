"""Metrics of a stored record, from every registered `metric.*` plugin."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarker.api.errors import UserError
from benchmarker.hooks import registry
from benchmarker.records import ceilings

if TYPE_CHECKING:
    from benchmarker.api.metric import Metric
    from benchmarker.records.record import Record


Derive = Callable[["Record"], Mapping[str, "Metric"]]
"""Derives all metrics of a record, by name."""


def load_metrics(results: Iterable[Path] = ()) -> Derive:
    """Load the metric plugins once; the returned function derives all metrics of a record, by name.

    It uses the ceilings in the user's cache and those stored with the records of `results`.
    """
    known = ceilings.known(results)
    hook = registry.load(registry.registered("metric")).hook

    def derive(record: Record) -> dict[str, Metric]:
        metrics: dict[str, Metric] = {}
        for part in hook.derive_metrics(record=record, ceilings=known):
            if twice := metrics.keys() & part.keys():
                raise UserError(f"two metric plugins derive {', '.join(sorted(twice))}; uninstall one of them")
            metrics |= part
        return metrics

    return derive
