"""Compute the energy of the timed window, and the state of the devices, from meter readings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from benchmarker.api.meter import SOURCES
from benchmarker.power.sensor import Timing, sensor
from benchmarker.power.series import series
from benchmarker.records.energy import Conditions, Energy, MeterReport, Range

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarker.api.meter import Channel, Domain
    from benchmarker.power.samplers import Sampled
    from benchmarker.power.series import Series
    from benchmarker.records.energy import EnergyFlag, SensorEnergy

SHORT_S = 30.0
"""The energy figure of a shorter window is marked `energy_short`."""
_PARTS: Mapping[Domain, set[Domain]] = {"psys": {"package", "dram"}, "module": {"package", "gpu", "dram"}}
"""Domains that contain others: they are left out of a total if any of the others is measured."""
_BESIDE: set[Domain] = {"gpu_memory"}
"""Domains that may or may not be contained in others: they are left out of every total."""


@dataclass(frozen=True, slots=True)
class Timed:
    """What was timed: the device as named by the framework, the numbers of steps and samples, and the step time.

    Of several `devices`, `uuid` and `pci` are those of the first, and `others` are the UUIDs of the others, if known.
    """

    platform: str
    uuid: str | None
    pci: str | None
    steps: int
    samples: int
    step_s: float
    devices: int = 1
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Accounts:
    """The energy parts of a record, and the reasons for their nulls by path."""

    energy: Energy | None
    telemetry: list[Conditions]
    meters: list[MeterReport]
    reasons: dict[str, str]


def settle(sampled: Sequence[Sampled], timed: Timed | None, rest_ns: tuple[int, int], period_s: float) -> Accounts:
    """Compute the energy parts of a record from the meter readings; without `timed` there is no energy."""
    reports = _reports(sampled, period_s)
    reasons: dict[str, str] = {}
    if timed is None:
        return Accounts(None, [], reports, {"energy": "nothing was timed"})
    sensors: list[SensorEnergy] = []
    telemetry: list[Conditions] = []
    channels = [each for one in sampled for each in one.channels if each.quantity in SOURCES]
    ours = _measured(channels, timed)
    for one in sampled:
        edges_ns = _edges_ns(one)
        for of in _by_sensor(series(one.channels, one.samples)):
            measured = (of[0].channel.id, of[0].channel.domain) in ours
            if any(each.channel.quantity in SOURCES for each in of):
                timing = Timing(rest_ns, edges_ns, period_s, timed.step_s)
                found, why = sensor(one.meter, of, timing, measured=measured)
                reasons |= {f"energy.sensors[{len(sensors)}].{name}": text for name, text in why.items()}
                sensors.append(found)
            if edges_ns is not None and (found_in := _conditions(one.meter, of, edges_ns, measured)):
                telemetry.append(found_in)
    if not sensors:
        return Accounts(None, telemetry, reports, reasons | {"energy": _lacking(reports)})
    energy, why = _energy(sensors, telemetry, timed, reasons)
    return Accounts(energy, telemetry, reports, reasons | why)


def _edges_ns(one: Sampled) -> tuple[int, int] | None:
    """Return the times of the readings at the edges of the timed window; None if one of them is missing."""
    at = {sample.mark: sample.time_ns for sample in one.samples if sample.mark}
    begin_ns, end_ns = at.get("begin"), at.get("end")
    return (begin_ns, end_ns) if begin_ns is not None and end_ns is not None and begin_ns < end_ns else None


def _by_sensor(all_series: Sequence[Series]) -> list[list[Series]]:
    """Group the series by component and domain."""
    groups: dict[tuple[str, str], list[Series]] = {}
    for each in all_series:
        groups.setdefault((each.channel.id, each.channel.domain), []).append(each)
    return list(groups.values())


def _measured(channels: Sequence[Channel], timed: Timed) -> set[tuple[str, Domain]]:
    """Return the sensors, by id and domain, that cover the devices that ran the case.

    On the CPU, these are the packages with their memory, or the domain that contains them. Otherwise it is the card
    with the framework's UUID or PCI address or, if none matches, the only card on the machine; for several devices, the
    cards with all of their UUIDs or, if these are not known, all cards if there are as many. If there is no `gpu`
    domain, the cards are those of the `module` domain: a GPU with its processor.
    """
    if timed.platform == "cpu":
        domains = {each.domain for each in channels}
        wanted = {"package", "dram"} if "package" in domains else {"psys"} if "psys" in domains else {"module"}
        return {(each.id, each.domain) for each in channels if each.domain in wanted}
    cards = [each for each in channels if each.domain == "gpu"]
    cards = cards or [each for each in channels if each.domain == "module" and each.pci]
    uuids = {_digits(uuid) for uuid in (timed.uuid, *timed.others) if uuid}
    found = {
        (each.id, each.domain) for each in cards if _digits(each.id) in uuids or (timed.pci and each.pci == timed.pci)
    }
    if found and (timed.devices == 1 or len(uuids & {_digits(each.id) for each in cards}) == timed.devices):
        return found
    every = {(each.id, each.domain) for each in cards}
    return every if len(every) == timed.devices else set()


def _digits(uuid: str) -> str:
    """Return a UUID without the prefix and dashes, which not every source includes."""
    return uuid.lower().removeprefix("gpu-").replace("-", "")


def _energy(
    sensors: Sequence[SensorEnergy], telemetry: Sequence[Conditions], timed: Timed, known: Mapping[str, str]
) -> tuple[Energy, dict[str, str]]:
    """Return the energy of the devices and of the machine, and the reasons for nulls; `known` has those of sensors."""
    of = {id(each): f"energy.sensors[{at}]" for at, each in enumerate(sensors)}

    def total(these: Sequence[SensorEnergy], name: str) -> tuple[float | None, str]:
        """Return the sum of a field; it is null if any part is missing."""
        values = [getattr(each, name) for each in these]
        missing = [
            f"{each.id}: {known[f'{of[id(each)]}.{name}']}"
            for each, value in zip(these, values, strict=True)
            if value is None
        ]
        return (
            (None, "; ".join(missing) or "no sensor covers it") if missing or not values else (float(sum(values)), "")
        )

    ours = _once([each for each in sensors if each.measured])
    every = _once(sensors)
    durations = [
        (each.end_ns - each.begin_ns) / 1e9
        for each in ours or every
        if each.begin_ns is not None and each.end_ns is not None
    ]
    duration_s = durations[0] if durations else 0.0
    reasons = {}
    energy_j, why = total(ours, "energy_J")
    if not ours:
        cards = sum(each.domain == "gpu" for each in sensors) if timed.platform != "cpu" else 0
        why = f"it is unknown which of {cards} cards ran it" if cards else f"no sensor here covers {timed.platform}"
        if 0 < cards < timed.devices:
            why = f"{timed.devices} cards ran it, but only {cards} can be read"
    elif any("shared" in each.flags for each in ours):
        energy_j, why = None, f"the sensor covers more than what ran the case: {ours[0].scope}"
    total_j, total_why = total(every, "energy_J")
    idle_w, idle_why = total(ours, "idle_W")
    total_idle_w, total_idle_why = total(every, "idle_W")
    for name, value, reason in (
        ("energy_J", energy_j, why),
        ("idle_W", idle_w, idle_why),
        ("total_J", total_j, total_why),
        ("total_idle_W", total_idle_w, total_idle_why),
    ):
        if value is None:
            reasons[f"energy.{name}"] = reason
    flags: list[EnergyFlag] = []
    if duration_s < SHORT_S and (energy_j is not None or total_j is not None):
        flags.append("energy_short")
    if any(each.measured and each.slowdowns for each in telemetry):
        flags.append("throttled")
    flags += [name for name in ("counter_suspect", "aliasing", "gaps") if any(name in each.flags for each in ours)]
    return Energy(
        duration_s=duration_s,
        steps=timed.steps,
        samples=timed.samples,
        domains=sorted({each.domain for each in ours}),
        energy_J=energy_j,
        idle_W=idle_w,
        total_domains=sorted({each.domain for each in every}),
        total_J=total_j,
        total_idle_W=total_idle_w,
        sensors=list(sensors),
        flags=flags,
    ), reasons


def _once(sensors: Sequence[SensorEnergy]) -> list[SensorEnergy]:
    """Return sensors without overlap: one meter per domain, preferably with a counter, and no domain with its parts."""
    domains = {each.domain for each in sensors}
    first: dict[Domain, str] = {}
    for each in sorted(sensors, key=lambda each: each.method != "counter"):
        first.setdefault(each.domain, each.meter)
    return [
        each
        for each in sensors
        if first[each.domain] == each.meter
        and each.domain not in _BESIDE
        and not _PARTS.get(each.domain, set()) & domains
    ]


def _conditions(meter: str, of: Sequence[Series], edges_ns: tuple[int, int], measured: bool) -> Conditions | None:
    """Return the state of a device in the window (all but energy and power); None if nothing of it was read."""
    ranges: dict[str, Range] = {}
    throttle: dict[str, float] = {}
    throttle_s: dict[str, float] = {}
    for each in of:
        inside, quantity = each.within(*edges_ns).valid().values, each.channel.quantity
        if quantity in SOURCES or not len(inside):
            continue
        if quantity == "throttle_mask":
            masks = inside.astype(np.uint64)
            for word in set(each.channel.bits.values()):
                bits = sum(bit for bit, of_bit in each.channel.bits.items() if of_bit == word)
                if share := float(np.mean(masks & np.uint64(bits) != 0)):
                    throttle[word] = share
        elif quantity == "throttle_time_s":
            throttle_s[each.channel.what] = float(inside[-1] - inside[0])
        else:
            ranges[quantity] = Range(float(inside.mean()), float(inside.min()), float(inside.max()), len(inside))
    if not (ranges or throttle or throttle_s):
        return None
    channel = of[0].channel
    return Conditions(
        meter=meter,
        id=channel.id,
        device=channel.device,
        measured=measured,
        ranges=ranges,
        throttle=throttle,
        throttle_s=throttle_s,
    )


def _reports(sampled: Sequence[Sampled], period_s: float) -> list[MeterReport]:
    """Return the report on each meter."""
    reports = []
    for one in sampled:
        late_ms = [sample.late_ns / 1e6 for sample in one.samples if not sample.mark]
        reports.append(
            MeterReport(
                meter=one.meter,
                channels=len(one.channels),
                ticks=len(late_ms),
                period_ms=period_s * 1e3 if late_ms else None,
                late_p95_ms=float(np.percentile(late_ms, 95)) if late_ms else None,
                unavailable=list(one.unavailable),
            )
        )
    return reports


def _lacking(reports: Sequence[MeterReport]) -> str:
    """Return why there is no sensor at all: the full text for one meter, the kinds of reason for several."""
    if len(reports) == 1:
        return f"{reports[0].meter}: {'; '.join(missing.text for missing in reports[0].unavailable)}"
    words = [f"{report.meter}: {report.unavailable[0].reason}" for report in reports if report.unavailable]
    return f"no sensor can be read ({', '.join(words)})" if words else "no meter was read (--power=none)"
