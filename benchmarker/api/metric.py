"""A metric: a figure derived from a record."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class Metric(Struct, frozen=True):
    """A figure derived from a record: a value in a unit without prefix (`s`, `B`, `1/s`, ...), or None and the reason.

    `headline` includes the metric in tables of several records.
    """

    value: float | None
    unit: str
    better: Literal["higher", "lower"]
    reason: str | None = None
    headline: bool = False
