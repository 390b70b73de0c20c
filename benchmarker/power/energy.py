"""Compute the energy of the timed window, and the state of the devices, from the meter readings of each node."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from benchmarker.api.meter import SOURCES, Channel, Domain
from benchmarker.power.sensor import Timing, sensor_energy
from benchmarker.power.series import Series, series
from benchmarker.records.energy import Conditions, Energy, EnergyFlag, MeterReport, Range, SensorEnergy

if TYPE_CHECKING:
    from benchmarker.power.samplers import Sampled

SHORT_S = 30.0
"""The energy figure of a shorter window is marked `energy_short`."""
_PARTS: Mapping[Domain, set[Domain]] = {"psys": {"package", "dram"}, "module": {"package", "gpu", "dram"}}
"""Domains that contain others: they are left out of a total if any of the others is measured."""
_BESIDE: set[Domain] = {"gpu_memory"}
"""Domains that may or may not be contained in others: they are left out of every total."""
_SENSOR = re.compile(r"energy\.sensors\[(\d+)\](.*)")
_SUMS = ("energy_J", "idle_W", "total_J", "total_idle_W")


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


def compute_energy(
    sampled: Sequence[Sampled], timed: Timed | None, rest_ns: tuple[int, int], period_s: float
) -> Accounts:
    """Compute the energy parts of a record from the meter readings; without `timed` there is no energy."""
    reports = _reports(sampled, period_s)
    reasons: dict[str, str] = {}
    if timed is None:
        return Accounts(None, [], reports, {"energy": "nothing was timed"})
    sensors: list[SensorEnergy] = []
    telemetry: list[Conditions] = []
    channels = [channel for meter in sampled for channel in meter.channels if channel.quantity in SOURCES]
    ours = _measured(channels, timed)
    for meter in sampled:
        edges_ns = _edges_ns(meter)
        for of in _by_sensor(series(meter.channels, meter.samples)):
            measured = (of[0].channel.id, of[0].channel.domain) in ours
            if any(one.channel.quantity in SOURCES for one in of):
                timing = Timing(rest_ns, edges_ns, period_s, timed.step_s)
                sensor, why = sensor_energy(meter.meter, of, timing, measured=measured)
                reasons |= {f"energy.sensors[{len(sensors)}].{name}": text for name, text in why.items()}
                sensors.append(sensor)
            if edges_ns is not None and (conditions := _conditions(meter.meter, of, edges_ns, measured)):
                telemetry.append(conditions)
    if not sensors:
        return Accounts(None, telemetry, reports, reasons | {"energy": _lacking(reports)})
    energy, why = _energy(sensors, telemetry, timed, reasons)
    return Accounts(energy, telemetry, reports, reasons | why)


def _edges_ns(meter: Sampled) -> tuple[int, int] | None:
    """Return the times of the readings at the edges of the timed window; None if one of them is missing."""
    at = {sample.mark: sample.time_ns for sample in meter.samples if sample.mark}
    begin_ns, end_ns = at.get("begin"), at.get("end")
    return (begin_ns, end_ns) if begin_ns is not None and end_ns is not None and begin_ns < end_ns else None


def _by_sensor(all_series: Sequence[Series]) -> list[list[Series]]:
    """Group the series by component and domain."""
    groups: dict[tuple[str, str], list[Series]] = {}
    for one in all_series:
        groups.setdefault((one.channel.id, one.channel.domain), []).append(one)
    return list(groups.values())


def _measured(channels: Sequence[Channel], timed: Timed) -> set[tuple[str, Domain]]:
    """Return the sensors, by id and domain, that cover the devices that ran the case.

    On the CPU, these are the packages with their memory, or the domain that contains them. Otherwise it is the card
    with the framework's UUID or PCI address or, if none matches, the only card on the machine; for several devices, the
    cards with all of their UUIDs or, if these are not known, all cards if there are as many. If there is no `gpu`
    domain, the cards are those of the `module` domain: a GPU with its processor.
    """
    if timed.platform == "cpu":
        domains = {channel.domain for channel in channels}
        wanted = {"package", "dram"} if "package" in domains else {"psys"} if "psys" in domains else {"module"}
        return {(channel.id, channel.domain) for channel in channels if channel.domain in wanted}
    cards = [channel for channel in channels if channel.domain == "gpu"]
    cards = cards or [channel for channel in channels if channel.domain == "module" and channel.pci]
    uuids = {_digits(uuid) for uuid in (timed.uuid, *timed.others) if uuid}
    ours = {
        (card.id, card.domain) for card in cards if _digits(card.id) in uuids or (timed.pci and card.pci == timed.pci)
    }
    if ours and (timed.devices == 1 or len(uuids & {_digits(card.id) for card in cards}) == timed.devices):
        return ours
    every = {(card.id, card.domain) for card in cards}
    return every if len(every) == timed.devices else set()


def _digits(uuid: str) -> str:
    """Return a UUID without the prefix and dashes, which not every source includes."""
    return uuid.lower().removeprefix("gpu-").replace("-", "")


def _energy(
    sensors: Sequence[SensorEnergy], telemetry: Sequence[Conditions], timed: Timed, known: Mapping[str, str]
) -> tuple[Energy, dict[str, str]]:
    """Return the energy of the devices and of the machine, and the reasons for nulls; `known` has those of sensors."""
    paths = {id(sensor): f"energy.sensors[{at}]" for at, sensor in enumerate(sensors)}

    def total(summed: Sequence[SensorEnergy], name: str) -> tuple[float | None, str]:
        """Return the sum of a field; it is null if any part is missing."""
        values = [getattr(sensor, name) for sensor in summed]
        missing = [
            f"{sensor.id}: {known[f'{paths[id(sensor)]}.{name}']}"
            for sensor, value in zip(summed, values, strict=True)
            if value is None
        ]
        return (
            (None, "; ".join(missing) or "no sensor covers it") if missing or not values else (float(sum(values)), "")
        )

    ours = _once([sensor for sensor in sensors if sensor.measured])
    every = _once(sensors)
    durations = [
        (sensor.end_ns - sensor.begin_ns) / 1e9
        for sensor in ours or every
        if sensor.begin_ns is not None and sensor.end_ns is not None
    ]
    duration_s = durations[0] if durations else 0.0
    reasons = {}
    energy_j, why = total(ours, "energy_J")
    if not ours:
        cards = sum(sensor.domain == "gpu" for sensor in sensors) if timed.platform != "cpu" else 0
        why = f"it is unknown which of {cards} cards ran it" if cards else f"no sensor here covers {timed.platform}"
        if 0 < cards < timed.devices:
            why = f"{timed.devices} cards ran it, but only {cards} can be read"
    elif any("shared" in sensor.flags for sensor in ours):
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
    if any(conditions.measured and conditions.slowdowns for conditions in telemetry):
        flags.append("throttled")
    flags += [name for name in ("counter_suspect", "aliasing", "gaps") if any(name in sensor.flags for sensor in ours)]
    return Energy(
        duration_s=duration_s,
        steps=timed.steps,
        samples=timed.samples,
        domains=sorted({sensor.domain for sensor in ours}),
        energy_J=energy_j,
        idle_W=idle_w,
        total_domains=sorted({sensor.domain for sensor in every}),
        total_J=total_j,
        total_idle_W=total_idle_w,
        sensors=list(sensors),
        flags=flags,
    ), reasons


def _once(sensors: Sequence[SensorEnergy]) -> list[SensorEnergy]:
    """Return sensors without overlap: one meter per domain, preferably with a counter, and no domain with its parts."""
    domains = {sensor.domain for sensor in sensors}
    first: dict[Domain, str] = {}
    for sensor in sorted(sensors, key=lambda sensor: sensor.method != "counter"):
        first.setdefault(sensor.domain, sensor.meter)
    return [
        sensor
        for sensor in sensors
        if first[sensor.domain] == sensor.meter
        and sensor.domain not in _BESIDE
        and not _PARTS.get(sensor.domain, set()) & domains
    ]


def _conditions(meter: str, of: Sequence[Series], edges_ns: tuple[int, int], measured: bool) -> Conditions | None:
    """Return the state of a device in the window (all but energy and power); None if nothing of it was read."""
    ranges: dict[str, Range] = {}
    throttle: dict[str, float] = {}
    throttle_s: dict[str, float] = {}
    for one in of:
        inside, quantity = one.within(*edges_ns).valid().values, one.channel.quantity
        if quantity in SOURCES or not len(inside):
            continue
        if quantity == "throttle_mask":
            masks = inside.astype(np.uint64)
            for word in set(one.channel.bits.values()):
                bits = sum(bit for bit, of_bit in one.channel.bits.items() if of_bit == word)
                if share := float(np.mean(masks & np.uint64(bits) != 0)):
                    throttle[word] = share
        elif quantity == "throttle_time_s":
            throttle_s[one.channel.what] = float(inside[-1] - inside[0])
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
    reports = []
    for meter in sampled:
        late_ms = [sample.late_ns / 1e6 for sample in meter.samples if not sample.mark]
        reports.append(
            MeterReport(
                meter=meter.meter,
                channels=len(meter.channels),
                ticks=len(late_ms),
                period_ms=period_s * 1e3 if late_ms else None,
                late_p95_ms=float(np.percentile(late_ms, 95)) if late_ms else None,
                unavailable=list(meter.unavailable),
            )
        )
    return reports


def _lacking(reports: Sequence[MeterReport]) -> str:
    """Return why there is no sensor at all: the full text for one meter, the kinds of reason for several."""
    if len(reports) == 1:
        return f"{reports[0].meter}: {'; '.join(missing.text for missing in reports[0].unavailable)}"
    words = [f"{report.meter}: {report.unavailable[0].reason}" for report in reports if report.unavailable]
    return f"no sensor can be read ({', '.join(words)})" if words else "no meter was read (--power=none)"


def sum_over_nodes(names: Sequence[str], accounts: Sequence[Accounts]) -> Accounts:
    """Return the energy parts of a record from those of each node.

    Energies and idle powers are sums. A sum is null if a part of it is; the reason then names the node, unless it is
    the same on all. The duration is that of the longest window, and flags are those of any node.
    """
    sensors: list[SensorEnergy] = []
    telemetry: list[Conditions] = []
    meters: list[MeterReport] = []
    reasons: dict[str, str] = {}
    for node, account in enumerate(accounts):
        for path, why in account.reasons.items():
            if match := _SENSOR.fullmatch(path):
                reasons[f"energy.sensors[{len(sensors) + int(match[1])}]{match[2]}"] = why
        sensors += [replace(sensor, node=node) for sensor in (account.energy.sensors if account.energy else [])]
        telemetry += [replace(conditions, node=node) for conditions in account.telemetry]
        meters += [replace(report, node=node) for report in account.meters]
    energies = [account.energy for account in accounts if account.energy]
    if not energies:
        why = _by_node(names, [account.reasons["energy"] for account in accounts])
        return Accounts(None, telemetry, meters, {"energy": why})
    sums: dict[str, float | None] = {}
    for name in _SUMS:
        values = [getattr(account.energy, name) if account.energy else None for account in accounts]
        known = [value for value in values if value is not None]
        sums[name] = sum(known) if len(known) == len(values) else None
        if sums[name] is None:
            lacking = [
                account.reasons[f"energy.{name}" if account.energy else "energy"] if value is None else ""
                for account, value in zip(accounts, values, strict=True)
            ]
            reasons[f"energy.{name}"] = _by_node(names, lacking)
    return Accounts(
        Energy(
            duration_s=max(energy.duration_s for energy in energies),
            steps=energies[0].steps,
            samples=energies[0].samples,
            domains=sorted({domain for energy in energies for domain in energy.domains}),
            energy_J=sums["energy_J"],
            idle_W=sums["idle_W"],
            total_domains=sorted({domain for energy in energies for domain in energy.total_domains}),
            total_J=sums["total_J"],
            total_idle_W=sums["total_idle_W"],
            sensors=sensors,
            flags=list(dict.fromkeys(flag for energy in energies for flag in energy.flags)),
        ),
        telemetry,
        meters,
        reasons,
    )


def _by_node(names: Sequence[str], reasons: Sequence[str]) -> str:
    """Return the reasons of nodes, empty for one that has none, as one; the names are left out if all are the same."""
    if len({*reasons}) == 1:
        return reasons[0]
    return "; ".join(f"node {name}: {why}" for name, why in zip(names, reasons, strict=True) if why)
