"""Find the Pareto-optimal configurations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from benchmarker.api.errors import UserError
from benchmarker.records.factors import work

if TYPE_CHECKING:
    from benchmarker.api.metric import Metric
    from benchmarker.hooks.cases import Configuration
    from benchmarker.hooks.metrics import Derive
    from benchmarker.records.record import Record


@dataclass(frozen=True, slots=True)
class Candidate:
    """A configuration with its medians over trials, in the order of the metrics; `optimal` if none dominates it."""

    configuration: Configuration
    values: tuple[float, ...]
    optimal: bool


@dataclass(frozen=True, slots=True)
class Front:
    """All points, with the optimal ones marked, and the number of configurations without one of the metrics."""

    metrics: tuple[Metric, ...]
    points: tuple[Candidate, ...]
    left_out: int


class _Trials(Protocol):
    """Something with trials of one case."""

    @property
    def records(self) -> Sequence[Record]: ...


_T = TypeVar("_T", bound=_Trials)


def by_work(groups: Iterable[_T]) -> list[list[_T]]:
    """Group trials by their work: a step of other work is neither better nor worse."""
    works: dict[bytes, list[_T]] = {}
    for group in groups:
        works.setdefault(msgspec.json.encode(work(group.records[0].case)), []).append(group)
    return list(works.values())


def front(groups: Sequence[Configuration], names: Sequence[str], derive: Derive) -> Front:
    """Mark the configurations of a work that are Pareto-optimal in the named metrics, each in its better direction.

    A configuration dominates another if it is at least as good in every metric and better in one. Medians over trials
    are compared; their uncertainty is ignored. Raises `UserError` if a metric is unknown.
    """
    found: list[tuple[Configuration, tuple[float, ...]]] = []
    metrics: tuple[Metric, ...] = ()
    for group in groups:
        derived = [derive(record) for record in group.records if record.error is None]
        if unknown := [name for each in derived for name in names if name not in each]:
            raise UserError(f"no metric is named {unknown[0]!r}; there are: {', '.join(derived[0])}")
        columns = [[value for each in derived if (value := each[name].value) is not None] for name in names]
        medians = [median(column) for column in columns if column]
        if len(medians) == len(names):
            metrics = tuple(derived[0][name] for name in names)
            found.append((group, tuple(medians)))
    signs = [1 if metric.better == "higher" else -1 for metric in metrics]
    scores = [tuple(sign * value for sign, value in zip(signs, values, strict=True)) for _, values in found]
    points = tuple(
        Candidate(group, values, not any(_dominates(other, score) for other in scores))
        for (group, values), score in zip(found, scores, strict=True)
    )
    return Front(metrics, points, len(groups) - len(found))


def _dominates(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one != other and all(a >= b for a, b in zip(one, other, strict=True))
