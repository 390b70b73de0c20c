"""Current readings of the meters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from benchmarker.api.meter import Channel
    from benchmarker.power.sampler import MeterProbe, Sample


LEAST_S = 0.05
"""Over a shorter time, a counter's power depends on when the counter was updated."""


def label(meter: str, thing: str, domain: str) -> str:
    """Return a sensor's name: its meter, its component, and its domain unless the component's name starts with it."""
    return " ".join([meter, thing, *([] if thing.startswith(domain) else [domain])])


class Now(Struct, frozen=True):
    """Current readings of a sensor.

    Power (also its peak and mean since the first reading), energy since the first reading, the state of the device, the
    reasons why its clocks were throttled since the last such report, and any trouble.
    """

    sensor: str
    meter: str
    id: str
    domain: str
    power_W: float | None
    mean_W: float | None
    peak_W: float | None
    energy_J: float | None
    temperature_C: float | None
    sm_clock_MHz: float | None
    utilisation_percent: float | None
    throttle: list[str]
    trouble: list[str]


@dataclass(slots=True)
class Sensor:
    """One domain of one component: its channels by index in the meter's readings, and what was read so far.

    Energy is the rise of the counter or, if there is none, the integral of the powers, each held until the next.
    """

    meter: str
    channels: Mapping[int, Channel]
    values: dict[int, float | str] = field(default_factory=dict)
    energy_J: float = 0.0
    known_s: float = 0.0
    peak_W: float | None = None
    trouble: dict[str, None] = field(default_factory=dict)
    _known: dict[int, tuple[int, float]] = field(default_factory=dict)
    _reported: tuple[float, float] = (0.0, 0.0)
    _words: dict[str, None] = field(default_factory=dict)

    @property
    def first(self) -> Channel:
        """Any of its channels: all of them describe the same component."""
        return next(iter(self.channels.values()))

    @property
    def name(self) -> str:
        """Its name; a card is named by its PCI address, which is shorter than its UUID."""
        return label(self.meter, self.first.pci or self.first.id, self.first.domain)

    def take(self, sample: Sample) -> None:
        """Process another reading of the meter."""
        source = self._place("energy_J", "power_average_W", "power_instant_W")
        polled = self._place("power_instant_W", "power_average_W")
        for at, channel in self.channels.items():
            reading = self.values[at] = sample.readings[at]
            if isinstance(reading, str):
                continue
            before = self._known.get(at)
            self._known[at] = sample.time_ns, reading
            power_w = reading if at == polled else None
            if before and at == source:
                seconds, rise = (sample.time_ns - before[0]) / 1e9, self._rise(channel, before[1], reading)
                if rise is not None and seconds:
                    self.energy_J += rise if channel.quantity == "energy_J" else before[1] * seconds
                    self.known_s += seconds
                    if polled is None and seconds >= LEAST_S:
                        power_w = rise / seconds
            if power_w is not None:
                self.peak_W = max(power_w, self.peak_W or 0.0)
            self._hold_down(channel, before, reading)

    def now(self) -> Now:
        """Return the current readings; the power of a sensor with only a counter is the mean since the last report."""
        polled = self._place("power_instant_W", "power_average_W")
        energy_j, known_s = self.energy_J - self._reported[0], self.known_s - self._reported[1]
        self._reported = self.energy_J, self.known_s
        power_w = self._value(polled) if polled is not None else energy_j / known_s if known_s else None
        words, self._words = list(self._words), {}
        return Now(
            sensor=self.name,
            meter=self.meter,
            id=self.first.id,
            domain=self.first.domain,
            power_W=power_w,
            mean_W=self.energy_J / self.known_s if self.known_s else None,
            peak_W=self.peak_W,
            energy_J=self.energy_J if self.known_s else None,
            temperature_C=self._value(self._place("temperature_C")),
            sm_clock_MHz=self._value(self._place("sm_clock_MHz")),
            utilisation_percent=self._value(self._place("utilisation_percent")),
            throttle=words,
            trouble=[*self._missing(), *self.trouble],
        )

    def _missing(self) -> list[str]:
        """Return the quantities without a current reading, by reason; if all are missing, only the reason."""
        by_reason: dict[str, dict[str, None]] = {}
        for at, channel in self.channels.items():
            if isinstance(value := self.values.get(at), str):
                by_reason.setdefault(value, {})[channel.quantity] = None
        every = {channel.quantity for channel in self.channels.values()}
        return [reason if every == {*names} else f"{', '.join(names)}: {reason}" for reason, names in by_reason.items()]

    def _place(self, *quantities: str) -> int | None:
        """Return the index of the first of these quantities that the sensor has."""
        for quantity in quantities:
            for at, channel in self.channels.items():
                if channel.quantity == quantity:
                    return at
        return None

    def _value(self, at: int | None) -> float | None:
        value = None if at is None else self.values.get(at)
        return value if isinstance(value, float) else None

    def _rise(self, channel: Channel, before: float, now: float) -> float | None:
        """Return the rise of a counter; for a power, which has none, 0."""
        if channel.quantity != "energy_J":
            return 0.0
        wraps_at = channel.wraps_at
        rise = now - before if now >= before else now - before + (wraps_at or 0.0)
        if rise < 0 or (wraps_at is not None and rise > wraps_at / 2):
            self.trouble["the counter ran backwards"] = None
            return None
        return rise

    def _hold_down(self, channel: Channel, before: tuple[int, float] | None, now: float) -> None:
        """Note why the clocks are throttled, from the bits that are set or a time that rose."""
        if channel.quantity == "throttle_mask":
            self._words |= dict.fromkeys(word for bit, word in channel.bits.items() if int(now) & bit)
        elif channel.quantity == "throttle_time_s" and before and now > before[1]:
            self._words[channel.what] = None


def sensors(probes: Mapping[str, MeterProbe]) -> list[Sensor]:
    """Return the sensors that the meters found, in the meters' order of components."""
    by_component: dict[tuple[str, str], dict[str, dict[int, Channel]]] = {}
    for meter, probe in probes.items():
        for at, channel in enumerate(probe.channels):
            domains = by_component.setdefault((meter, channel.id), {})
            domains.setdefault(channel.domain, {})[at] = channel
    return [Sensor(meter, channels) for (meter, _), domains in by_component.items() for channels in domains.values()]


def take(several: Iterable[Sensor], samples: Mapping[str, Sample]) -> None:
    """Pass each sensor its meter's latest reading; if there is none, note that as trouble."""
    for sensor in several:
        if sensor.meter in samples:
            sensor.take(samples[sensor.meter])
        else:
            sensor.values.clear()
            sensor.trouble["its meter does not answer"] = None
