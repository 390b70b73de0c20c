"""A metric: a figure derived from a record, and where it is shown."""

from typing import Literal

from msgspec import Struct


class Plot(Struct, frozen=True):
    """How the report draws a metric over each parameter that varies: its name in words, and what predicts it.

    One that is `only_predicted` says nothing new unless a prediction stands beside it.
    """

    title: str
    predicted: str = ""
    only_predicted: bool = False


class Figure(Struct, frozen=True, forbid_unknown_fields=True):
    """What a workload or a program told of itself, or the operating system of the program."""

    name: str  #: name of the figure, and of the metric that it is
    unit: str  #: unit without prefix
    better: Literal["higher", "lower"]  #: which of two values is better
    values: list[float]  #: a value for each timed execution, or all that it told; the metric is the median


class Metric(Struct, frozen=True):
    """A figure derived from a record: a value in a unit without prefix (`s`, `B`, `1/s`, ...), or None and the reason.

    `headline` includes the metric in tables of several records, in which those with a lower `order` stand first. The
    report draws one that has a `plot`. `scored` includes it in scores of which no metrics are named.
    """

    value: float | None
    unit: str
    better: Literal["higher", "lower"]
    reason: str | None = None
    headline: bool = False
    order: int = 100
    plot: Plot | None = None
    scored: bool = False
