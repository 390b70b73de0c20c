"""What a record says of power, energy and the state of the devices, as rows of (name, value)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarker.cli.display.sensors import HEADINGS, amount
from benchmarker.formatting import si
from benchmarker.power.energy import SHORT_S
from benchmarker.power.live import label

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarker.records.energy import Conditions, Energy, SensorEnergy
    from benchmarker.records.record import Record

_FLAGS = {
    "counter_suspect": "SUSPECT: its counter and its polled powers differ",
    "counter_stalled": "its counter stood still and is not used",
    "counter_backwards": "its counter ran backwards and is not used",
    "aliasing": "in step with the work, of which it may always see the same part",
    "gaps": "gaps between its readings",
    "shared": "the case may have had only a part of what it sees",
}
"""Flags of a sensor, in words."""


def sensed_rows(record: Record) -> list[list[str]]:
    """What was sensed, or why nothing was; little where nobody asked for it."""
    asked = record.case.measuring.wants_power
    found = []
    if record.energy:
        found += _energy(record, record.energy)
    elif asked:
        found.append(["energy", f"none: {'no sensor can be read' if _nothing(record) else record.reasons['energy']}"])
    elif record.meters:
        found.append(["power", f"none: {why_nothing(record)}"])
    for each in record.telemetry:
        found += _conditions(each)
    if asked:
        found += [
            [f"{report.meter} unavailable", missing.text] for report in record.meters for missing in report.unavailable
        ]
    return found


def why_nothing(record: Record) -> str:
    """Why nothing was sensed, in a few words: of meters that can read nothing, the kind of the reason alone."""
    if not _nothing(record):
        return record.reasons.get("energy", "no meter was read")
    words = {report.meter: report.unavailable[0].reason for report in record.meters if report.unavailable}
    return "; ".join(f"{meter}: {reason}" for meter, reason in words.items()) + "; `benchmarker power` says more"


def _nothing(record: Record) -> bool:
    """Whether meters were asked, and none has anything to read."""
    return bool(record.meters) and not any(report.channels for report in record.meters)


def _energy(record: Record, energy: Energy) -> list[list[str]]:
    """The energy of the device and of the machine, then what each sensor says."""
    reason = record.reasons.get("energy.energy_J", "")
    found = [["energy", _sum(energy, energy.domains, energy.energy_J, energy.idle_W) or f"none: {reason}"]]
    if energy.total_domains != energy.domains or energy.total_J != energy.energy_J:
        reason = record.reasons.get("energy.total_J", "")
        total = _sum(energy, energy.total_domains, energy.total_J, energy.total_idle_W) or f"none: {reason}"
        found.append(["of all sensors", total])
    if "energy_short" in energy.flags:
        asking = "" if record.case.measuring.wants_power else "--power=auto "
        found.append(["SHORT", f"an energy wants {SHORT_S:g} s or more: {asking}--power-min=60"])
    for at, sensor in enumerate(energy.sensors):
        found.append(
            [
                label(sensor.meter, sensor.id, sensor.domain),
                _sensor(sensor, record.reasons.get(f"energy.sensors[{at}].energy_J", "")),
            ]
        )
    return found


def _sum(energy: Energy, domains: Sequence[str], energy_j: float | None, idle_w: float | None) -> str:
    """An energy with the window that it is of, gross, and the idle power beside it; empty where there is none."""
    if energy_j is None:
        return ""
    mean = f", mean {si(energy_j / energy.duration_s, 'W')}" if energy.duration_s else ""
    idle = "" if idle_w is None else f", idle {si(idle_w, 'W')}"
    return (
        f"{si(energy_j, 'J')} of {', '.join(domains)} in {energy.duration_s:.1f} s, "
        f"{energy.steps} step(s), {energy.samples} sample(s){mean}{idle}"
    )


def _sensor(sensor: SensorEnergy, reason: str) -> str:
    """One sensor: its energy and how it was had, its powers, and what makes them doubtful."""
    parts = [f"none: {reason}" if sensor.energy_J is None else f"{si(sensor.energy_J, 'J')} by {_method(sensor)}"]
    powers = (("mean", sensor.mean_W), ("p95", sensor.p95_W), ("peak", sensor.peak_W), ("idle", sensor.idle_W))
    parts += [f"{name} {si(value, 'W')}" for name, value in powers if value is not None]
    if sensor.accuracy_percent is not None:
        parts.append(f"±{sensor.accuracy_percent:g}% as documented")
    if sensor.begin_ns is not None and sensor.coverage < 1:
        parts.append(f"{sensor.n} readings cover {sensor.coverage:.1%}")
    parts += [f"{count} {what}(s)" for what, count in (("gap", sensor.gaps), ("wrap", sensor.wraps)) if count]
    parts += [_FLAGS[flag] for flag in sensor.flags if flag != "gaps"]
    if sensor.scope:
        parts.append(f"it sees {sensor.scope}")
    if not sensor.measured:
        parts.append("not of the device that ran the case")
    return ", ".join(parts)


def _method(sensor: SensorEnergy) -> str:
    """How the energy was had, with the other way to it where there is one."""
    if sensor.method != "counter" or sensor.polled_J is None:
        return sensor.method or "-"
    ratio = "" if sensor.ratio is None else f", ratio {sensor.ratio:.3g}"
    return f"counter (polled {si(sensor.polled_J, 'J')}{ratio})"


def _conditions(state: Conditions) -> list[list[str]]:
    """The state of a device: mean and highest of each quantity, and why its clocks were held down."""
    of = f"{state.meter} {state.device or state.id}"
    ranges = [
        f"{HEADINGS.get(name, name)} {amount(name, each.mean)}"
        + (f" (to {amount(name, each.max)})" if amount(name, each.max) != amount(name, each.mean) else "")
        for name, each in state.ranges.items()
    ]
    words = [
        f"{word} {', '.join(part for part in parts if part)}"
        for word in dict.fromkeys([*state.throttle, *state.throttle_s])
        if any(
            parts := (
                f"{state.throttle.get(word, 0):.1%} of the readings" if state.throttle.get(word) else "",
                f"{state.throttle_s.get(word, 0):.2g} s" if state.throttle_s.get(word) else "",
            )
        )
    ]
    found = [[of, ", ".join(ranges)]] if ranges else []
    if state.slowdowns:
        found.append(["THROTTLED", f"{of} held its clocks down: {', '.join(state.slowdowns)}"])
    if words:
        found.append(["clocks held by", f"{of}: {'; '.join(words)}"])
    return found
