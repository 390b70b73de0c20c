"""The parts of a record about power, energy and the state of the devices."""

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
    """Readings of one sensor in its window, whose edges are the times of its own readings."""

    meter: str  #: the meter that reads the sensor
    id: str  #: the hardware that contains the sensor: a UUID or a name (`package-0`, `dram-0`)
    device: str  #: description of that hardware
    domain: Domain  #: what the sensor measures
    scope: str  #: what the sensor covers, if it is not simply that hardware
    measured: bool  #: whether the sensor measures the device that ran the case
    begin_ns: Annotated[Count | None, NOT_READ]  #: start of the sensor's window, on the monotonic clock
    end_ns: Annotated[Count | None, NOT_READ]  #: end of the sensor's window
    energy_J: Annotated[float | None, NOT_READ]  #: energy of the window
    method: Annotated[Literal["counter", "polled"] | None, NOT_READ]  #: how `energy_J` was obtained
    polled_J: Annotated[float | None, NOT_READ]  #: energy from polled power: each value is held until the next reading
    ratio: Annotated[float | None, NOT_READ]  #: energy by the counter divided by energy from polled power
    mean_W: Annotated[float | None, NOT_READ]  #: `energy_J` divided by the duration of the window
    #: median power, of polled values or between successive readings of the counter
    p50_W: Annotated[float | None, NOT_READ]
    p95_W: Annotated[float | None, NOT_READ]  #: 95th percentile of the same values
    peak_W: Annotated[float | None, NOT_READ]  #: maximum of the same values
    idle_W: Annotated[float | None, NOT_READ]  #: mean idle power, before the trial's process was started
    update_ms: Annotated[float | None, UNDOCUMENTED]  #: documented time between new values of the sensor
    window_ms: Annotated[float | None, UNDOCUMENTED]  #: documented time over which a value is averaged
    #: median time between changes of the value; never less than the time between readings
    observed_update_ms: Annotated[float | None, NOT_READ]
    #: documented accuracy: the largest deviation from the true value
    accuracy_percent: Annotated[float | None, UNDOCUMENTED]
    n: Count  #: readings in the window
    coverage: Share  #: share of the window outside gaps
    gaps: Count  #: number of stretches without a reading
    wraps: Count  #: how often the counter wrapped to zero; wraps are corrected
    #: `counter_suspect`: counter and polled power differ by more than 10%; `counter_stalled`, `counter_backwards`: the
    #: counter was rejected; `aliasing`: the sensor may see the same part of every step; `gaps`: there are stretches
    #: without a reading; `shared`: other workloads may share what the sensor measures
    flags: list[SensorFlag]
    #: its node, as the place in `machines`; 0 if there is one. `begin_ns` and `end_ns` are times of that node's clock
    node: Count = 0


class Energy(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Energy of one window: from the reading of a meter just before the first timed block to that just after the last.

    Idle power is not subtracted. Over several nodes, energies and powers are sums, each node in its own window.
    """

    duration_s: Annotated[float, Meta(ge=0)]  #: duration of the window, over several nodes of the longest
    steps: Count  #: steps in the window
    samples: Count  #: samples in the window
    domains: list[Domain]  #: domains that `energy_J` covers: `gpu`, or `package` and `dram`, ...
    #: energy of the device that ran the case, or of all its devices on all nodes
    energy_J: Annotated[float | None, NOT_READ]
    idle_W: Annotated[float | None, NOT_READ]  #: idle power of that device, before the trial's process was started
    total_domains: list[Domain]  #: domains that `total_J` covers
    #: energy of everything that the sensors measure on the machine, or on all nodes, with nothing counted twice
    total_J: Annotated[float | None, NOT_READ]
    total_idle_W: Annotated[float | None, NOT_READ]  #: idle power of the same domains as `total_J`
    sensors: list[SensorEnergy]  #: every sensor that was read
    #: `energy_short`: the window of an energy value is shorter than 30 s; `throttled`: the device reduced its clocks;
    #: `counter_suspect`, `aliasing`, `gaps`: a sensor of the device has this flag
    flags: list[EnergyFlag]


class Range(Struct, frozen=True, forbid_unknown_fields=True):
    """Mean and extremes of `n` readings."""

    mean: float
    min: float
    max: float
    n: Count


class Conditions(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The state of one device in the timed window: ranges by quantity, and why its clocks were reduced."""

    meter: str  #: the meter that reads the device
    id: str  #: UUID or name of the device
    device: str  #: description of the device
    measured: bool  #: whether the device ran the case
    #: for each quantity (`temperature_C`, `sm_clock_MHz`, ...): `mean`, `min`, `max` and `n`, the number of readings
    ranges: dict[str, Range]
    #: for each reason for a reduced clock, the share of the readings that reported it; `thermal`, `hardware` and `power
    #: brake` are slowdowns, other reasons are informational
    throttle: dict[str, Share]
    throttle_s: dict[str, float]  #: how long each reason applied, by the device's own counter
    node: Count = 0  #: its node, as the place in `machines`; 0 if there is one

    @property
    def slowdowns(self) -> list[str]:
        """The words of the slowdowns that occurred."""
        return [
            word for word in SLOWDOWNS if self.throttle.get(word, 0.0) > 0.0 or self.throttle_s.get(word, 0.0) > 0.0
        ]


class MeterReport(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One requested meter: what it read and how regularly, and what it could not read."""

    meter: str  #: name of the meter
    channels: Count  #: number of channels (time series) that the meter reads on this machine
    ticks: Count  #: how often the meter was read periodically
    period_ms: Annotated[float | None, null_because("it was not sampled")]  #: requested time between two readings
    #: 95th percentile of how late the readings were
    late_p95_ms: Annotated[float | None, null_because("it was not sampled")]
    unavailable: list[Unavailable]  #: what the meter could not read
    node: Count = 0  #: the node where it was queried, as the place in `machines`; 0 if there is one
