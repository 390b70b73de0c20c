"""The columns of a table of results: the medians of metrics over the trials of each case, and how many trials it has.

A column that stands here is in what `show` and `run` print and in the report.
"""

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Protocol

from benchmarker.api.metric import Metric
from benchmarker.comparing.disturbances import disturbances
from benchmarker.comparing.formatting import measure
from benchmarker.hooks.metrics import Derive
from benchmarker.records.record import Record
from benchmarker.records.step_times import MEAN_STEP_TIME, STEP_TIME
from benchmarker.stats.median_interval import median_spreads
from benchmarker.tables.table import Filled, metric_heading, number, spread

_SHORT = {STEP_TIME: "step time", "times_predicted": "measured/predicted"}


class Trials(Protocol):
    """A case with its trials."""

    @property
    def records(self) -> Sequence[Record]:
        """All trials."""

    @property
    def ok(self) -> Sequence[Record]:
        """The successful ones."""


COUNTS: Mapping[str, Callable[[Trials], int]] = {
    "trials": lambda case: len(case.ok),
    "failed": lambda case: len(case.records) - len(case.ok),
    "disturbed": lambda case: sum(map(bool, disturbances(case.records))),
}
"""How many trials of a case succeeded, failed, and were disturbed."""


def counts(cases: Sequence[Trials]) -> list[Filled]:
    """Return the columns of numbers of trials, without those that are 0 throughout."""
    filled = [(number(name), list(map(count, cases))) for name, count in COUNTS.items()]
    return [(column, cells) for column, cells in filled if column.name == "trials" or any(cells)]


def metrics(
    trials: Sequence[Sequence[Record]],
    derive: Derive,
    chosen: Sequence[str] = (),
    skew: Sequence[str] = (),
    has_spread: Callable[[str], bool] = lambda _: False,
) -> list[Filled]:
    """Return the median of each metric over each of several sets of trials, and its spread if it has one.

    The metrics are those `chosen`, or else the headline metrics that have a value, the most important first, with the
    mean step time if a case has a `skew`. A spread has a text in print, and two ends in CSV.
    """
    derived = [[derive(record) for record in several] for several in trials]
    known: dict[str, Metric] = {}
    for metric_of in (metrics for several in derived for metrics in several):
        for name, metric in metric_of.items():
            wanted = name in chosen if chosen else metric.headline or (bool(skew) and name == MEAN_STEP_TIME)
            if wanted and (metric.value is not None or chosen):
                known.setdefault(name, metric)
    names = list(chosen) or sorted(known, key=lambda name: known[name].order)
    filled: list[Filled] = []
    what = ""
    for name, heading in headings(names, skew).items():
        values = [[each[name].value for each in several if name in each] for several in derived]
        measured = [[value for value in several if value is not None] for several in values]
        unit = known[name].unit if name in known else ""
        filled.append((number(name, unit, heading), [median(several) if several else None for several in measured]))
        if has_spread(name) and max(map(len, measured)) > 1:
            kind, ends = median_spreads(measured)
            what = f"{heading} {kind}" if what else kind
            filled += spread(what, name, ends, unit)
    return filled


def headings(names: Sequence[str], skew: Sequence[str] = ()) -> dict[str, str]:
    """Return the heading of each metric: its name in words, or as it is where that would be ambiguous.

    Where the mean step time stands beside the median, both say so.
    """
    words = [
        measure(name) if skew and name in (STEP_TIME, MEAN_STEP_TIME) else _SHORT.get(name) or metric_heading(name)
        for name in names
    ]
    return {name: word if words.count(word) == 1 else name for name, word in zip(names, words, strict=True)}
