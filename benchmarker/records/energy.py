"""The parts of a record about power, energy and the state of the devices."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from benchmarker.api.fields import Count, null_because
from benchmarker.api.meter import SLOWDOWNS, Domain, Unavailable

Share = Annotated[float, Meta(ge=0, le=1)]
SensorFlag = Literal["counter_suspect", "counter_stalled", "counter_backwards", "aliasing", "gaps", "shared"]
NOT_READ = null_because("the sensor was not read")
UNDOCUMENTED = null_because("the documentation of its meter does not state it")
"""Reasons that are used if the meters themselves gave none."""
EnergyFlag = Literal["energy_short", "throttled", "counter_suspect", "aliasing", "gaps"]


class SensorEnergy(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Readings of one sensor in the window from `begin_ns` to `end_ns`, the times of its own readings at the edges.

    `method` states how `energy_J` was obtained: from the sensor's counter, or by holding each polled power until the
    next (`polled_J`). `ratio` is the counter's energy divided by `polled_J`. Percentiles and peak are of the polled
    powers or, if there are none, of the counter's mean power from tick to tick. `measured` means that the sensor covers
    the device that ran the case. `update_ms`, `window_ms` and `accuracy_percent` are documented values;
    `observed_update_ms` is determined from changes of its readings. The window contains `n` readings, which cover the
    share `coverage` of it. A counter that wrapped (`wraps` times) was corrected. `node` is the place of its node in
    `machines`, 0 if there is one; the times are by the clock of that node.
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
    node: Count = 0


class Energy(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Energy of the timed window, which is `duration_s` long and contains this number of steps and samples.

    `energy_J` is that of the device that ran the case, over its `domains`. `total_J` is that of everything that the
    sensors cover on the machine, over `total_domains`, with nothing counted twice. Both are gross values: the idle
    powers `idle_W` and `total_idle_W`, measured before the worker started, are not subtracted. Over several nodes,
    energies and powers are the sums over them, each in its own window, and the longest window counts.
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
    """The state of one device in the timed window: ranges by quantity, and why its clocks were throttled.

    `throttle` is the share of the readings that reported a reason, by the reason's word. `throttle_s` is its duration
    as counted by the device. The words `thermal`, `hardware` and `power brake` are slowdowns, others are notes. `node`
    is the place of its node in `machines`, 0 if there is one.
    """

    meter: str
    id: str
    device: str
    measured: bool
    ranges: dict[str, Range]
    throttle: dict[str, Share]
    throttle_s: dict[str, float]
    node: Count = 0

    @property
    def slowdowns(self) -> list[str]:
        """The words of the slowdowns that occurred."""
        return [
            word for word in SLOWDOWNS if self.throttle.get(word, 0.0) > 0.0 or self.throttle_s.get(word, 0.0) > 0.0
        ]


class MeterReport(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One requested meter: what it read and how regularly, and what it could not read; `node` as for a sensor."""

    meter: str
    channels: Count
    ticks: Count
    period_ms: Annotated[float | None, null_because("it was not sampled")]
    late_p95_ms: Annotated[float | None, null_because("it was not sampled")]
    unavailable: list[Unavailable]
    node: Count = 0
