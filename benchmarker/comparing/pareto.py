"""Find the Pareto-optimal configurations."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from operator import ge
from statistics import median
from typing import Generic, TypeVar

import msgspec

from benchmarker.api.metric import Metric
from benchmarker.api.precision import PRECISIONS
from benchmarker.hooks.cases import Configuration
from benchmarker.hooks.metrics import Derive, metric_of
from benchmarker.records.factors import work
from benchmarker.stats.median_interval import median_interval

Interval = tuple[float, float] | tuple[None, None]
G = TypeVar("G", bound=Configuration)
ERRORS = frozenset({"error", "componentwise_error", "effective_bits"})
"""Metrics of the error of outputs."""


@dataclass(frozen=True, slots=True)
class Candidate(Generic[G]):
    """A configuration with its medians over trials, in the order of the metrics; `optimal` if none dominates it.

    `intervals` are the ends of the 95% intervals of the medians, None for fewer than six trials.
    """

    configuration: G
    values: tuple[float, ...]
    optimal: bool
    intervals: tuple[Interval, ...]


@dataclass(frozen=True, slots=True)
class Front(Generic[G]):
    """All points, with the optimal ones marked, and the number of configurations without one of the metrics."""

    metrics: tuple[Metric, ...]
    points: tuple[Candidate[G], ...]
    left_out: int


def by_work(groups: Iterable[G], names: Collection[str]) -> list[list[G]]:
    """Group trials by their work: a step of other work is neither better nor worse.

    If an error is among the metrics, all precisions do the same work: the error is what a shorter one costs. Integers
    are other data.
    """
    works: dict[bytes, list[G]] = {}
    for group in groups:
        case = group.records[0].case
        types, factors = PRECISIONS.get(case.precision), work(case)
        if ERRORS.intersection(names) and types and types.accumulate != "int32":
            del factors["precision"]
        works.setdefault(msgspec.json.encode(factors), []).append(group)
    return list(works.values())


def front(groups: Sequence[G], names: Sequence[str], derive: Derive) -> Front[G]:
    """Mark the configurations of a work that are Pareto-optimal in the named metrics, each in its better direction.

    A configuration dominates another if it is at least as good in every metric and better in one. Medians over trials
    are compared; their uncertainty is ignored.
    """
    measured: list[tuple[G, tuple[float, ...], tuple[Interval, ...]]] = []
    metrics: tuple[Metric, ...] = ()
    for group in groups:
        derived = [[metric_of(record, name, derive(record)) for record in group.ok] for name in names]
        columns = [[each.value for each in several if each.value is not None] for several in derived]
        if all(columns):
            metrics = tuple(next(each for each in several if each.value is not None) for several in derived)
            intervals = tuple(median_interval(column) or (None, None) for column in columns)
            measured.append((group, tuple(map(median, columns)), intervals))
    signs = [1 if metric.better == "higher" else -1 for metric in metrics]
    scores = [tuple(sign * value for sign, value in zip(signs, values, strict=True)) for _, values, _ in measured]
    points = tuple(
        Candidate(group, values, not any(other != score and all(map(ge, other, score)) for other in scores), intervals)
        for (group, values, intervals), score in zip(measured, scores, strict=True)
    )
    return Front(metrics, points, len(groups) - len(measured))
