"""What a record says of power, energy and the state of the devices."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from benchmarker.api.meter import SLOWDOWNS, Domain, Unavailable
from benchmarker.api.nulls import null_because

Count = Annotated[int, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, le=1)]
SensorFlag = Literal["counter_suspect", "counter_stalled", "counter_backwards", "aliasing", "gaps", "shared"]
NOT_READ = null_because("the sensor was not read")
UNDOCUMENTED = null_because("the documentation of its meter does not say")
"""Reasons that stand where the meters themselves gave none."""
EnergyFlag = Literal["energy_short", "throttled", "counter_suspect", "aliasing", "gaps"]


class SensorEnergy(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What one sensor says of the window from `begin_ns` to `end_ns`, its own readings at the edges.

    `method` is how `energy_J` was had: from the sensor's counter, or by holding each polled power until the next
    (`polled_J`); `ratio` is the first by the second. Percentiles and peak are of polled powers, or, where there are
    none, of the counter's rises from tick to tick. `measured`: it sees the device that ran the case. `update_ms`,
    `window_ms` and `accuracy_percent` are as documented, `observed_update_ms` as its readings changed. `n` readings
    fell into the window and cover this share of it; a counter that wrapped was mended.
    """

    meter: str
    id: str
    device: str
    domain: Domain
    scope: str
    measured: bool
    begin_ns: Annotated[Count | None, NOT_READ]
    end_ns: Annotated[Count | None, NOT_READ]
    energy_J: Annotated[float | None, NOT_READ]
    method: Annotated[Literal["counter", "polled"] | None, NOT_READ]
    polled_J: Annotated[float | None, NOT_READ]
    ratio: Annotated[float | None, NOT_READ]
    mean_W: Annotated[float | None, NOT_READ]
    p50_W: Annotated[float | None, NOT_READ]
    p95_W: Annotated[float | None, NOT_READ]
    peak_W: Annotated[float | None, NOT_READ]
    idle_W: Annotated[float | None, NOT_READ]
    update_ms: Annotated[float | None, UNDOCUMENTED]
    window_ms: Annotated[float | None, UNDOCUMENTED]
    observed_update_ms: Annotated[float | None, NOT_READ]
    accuracy_percent: Annotated[float | None, UNDOCUMENTED]
    n: Count
    coverage: Share
    gaps: Count
    wraps: Count
    flags: list[SensorFlag]


class Energy(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Energy of the timed window, `duration_s` long, in which so many steps and samples were done.

    `energy_J` is of the device that ran the case, over its `domains`; `total_J` of all that the sensors see of the
    machine, over `total_domains`, nothing twice. Both are gross: `idle_W` and `total_idle_W`, taken before the worker
    began, stand beside them.
    """

    duration_s: Annotated[float, Meta(ge=0)]
    steps: Count
    samples: Count
    domains: list[Domain]
    energy_J: Annotated[float | None, NOT_READ]
    idle_W: Annotated[float | None, NOT_READ]
    total_domains: list[Domain]
    total_J: Annotated[float | None, NOT_READ]
    total_idle_W: Annotated[float | None, NOT_READ]
    sensors: list[SensorEnergy]
    flags: list[EnergyFlag]


class Range(Struct, frozen=True, forbid_unknown_fields=True):
    """Mean and extremes of `n` readings."""

    mean: float
    min: float
    max: float
    n: Count


class Conditions(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The state of one device in the timed window: ranges by quantity, and why its clocks were held down.

    `throttle` is the share of the readings that gave a reason, by its word; `throttle_s` how long by the device's own
    count. The words `thermal`, `hardware` and `power brake` are slowdowns, others are notes.
    """

    meter: str
    id: str
    device: str
    measured: bool
    ranges: dict[str, Range]
    throttle: dict[str, Share]
    throttle_s: dict[str, float]

    @property
    def slowdowns(self) -> list[str]:
        """The slowdowns that it had, in words."""
        return [
            word for word in SLOWDOWNS if self.throttle.get(word, 0.0) > 0.0 or self.throttle_s.get(word, 0.0) > 0.0
        ]


class MeterReport(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One meter that was asked: what it read and how regularly, and what it could not read."""

    meter: str
    channels: Count
    ticks: Count
    period_ms: Annotated[float | None, null_because("it was not sampled")]
    late_p95_ms: Annotated[float | None, null_because("it was not sampled")]
    unavailable: list[Unavailable]
