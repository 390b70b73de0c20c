"""Power, energy and device state of a record, as rows of (name, value)."""

from collections.abc import Sequence

from benchmarker.display.machine import HEADINGS, amount
from benchmarker.formatting import count, si
from benchmarker.power.energy import SHORT_S
from benchmarker.power.live import label
from benchmarker.records.energy import Conditions, Energy, SensorEnergy
from benchmarker.records.record import Record

_FLAGS = {
    "counter_suspect": "SUSPECT: energy counter and polled power disagree",
    "counter_stalled": "the energy counter stalled and is not used",
    "counter_backwards": "the energy counter ran backwards and is not used",
    "aliasing": "aliasing: sampled in step with the work, so it may always see the same part of a step",
    "gaps": "gaps between readings",
    "shared": "shared: the case may have caused only part of the reading",
}
"""Flags of a sensor as text."""


def sensed_rows(record: Record) -> list[list[str]]:
    """Return what was measured, or why nothing was; brief if no meter was requested."""
    asked = record.case.measuring.wants_power
    found = []
    if record.energy:
        found += _energy(record, record.energy)
    elif asked:
        found.append(["energy", f"none: {'no sensor can be read' if _nothing(record) else record.reasons['energy']}"])
    elif record.meters:
        found.append(["power", f"none: {why_nothing(record)}"])
    names = record.node_names
    for each in record.telemetry:
        found += _conditions(each, names)
    if asked:
        found += [
            [f"{_on(names, report.node)}{report.meter} unavailable", missing.text]
            for report in record.meters
            for missing in report.unavailable
        ]
    return found


def why_nothing(record: Record) -> str:
    """Return why nothing was measured, in a few words: one reason keyword for each meter that can read nothing."""
    if not _nothing(record):
        return record.reasons.get("energy", "no meter was read")
    words = {report.meter: report.unavailable[0].reason for report in record.meters if report.unavailable}
    return "; ".join(f"{meter}: {reason}" for meter, reason in words.items()) + "; run `benchmarker power` for details"


def _nothing(record: Record) -> bool:
    """Return whether meters were queried and none can read anything."""
    return bool(record.meters) and not any(report.channels for report in record.meters)


def _energy(record: Record, energy: Energy) -> list[list[str]]:
    """Return the energy of the device and of the machine, then a row for each sensor."""
    reason = record.reasons.get("energy.energy_J", "")
    found = [["energy", _sum(energy, energy.domains, energy.energy_J, energy.idle_W) or f"none: {reason}"]]
    if energy.total_domains != energy.domains or energy.total_J != energy.energy_J:
        reason = record.reasons.get("energy.total_J", "")
        total = _sum(energy, energy.total_domains, energy.total_J, energy.total_idle_W) or f"none: {reason}"
        found.append(["energy, all sensors", total])
    if "energy_short" in energy.flags:
        asking = "" if record.case.measuring.wants_power else "--power=auto "
        found.append(["SHORT", f"an energy figure needs {SHORT_S:g} s or more: use {asking}--power-min=60"])
    names = record.node_names
    used = {(sensor.node, sensor.id) for sensor in energy.sensors if sensor.measured}
    for at, sensor in enumerate(energy.sensors):
        text = _sensor(sensor, record.reasons.get(f"energy.sensors[{at}].energy_J", ""))
        if not sensor.measured:
            is_part = (sensor.node, sensor.id) in used
            text += ", a part of the device's" if is_part else ", not of the device that ran the case"
        found.append([_on(names, sensor.node) + label(sensor.meter, sensor.id, sensor.domain), text])
    return found


def _sum(energy: Energy, domains: Sequence[str], energy_j: float | None, idle_w: float | None) -> str:
    """Return a gross energy with its window and the idle power as text; empty if there is none."""
    if energy_j is None:
        return ""
    mean = f", mean {si(energy_j / energy.duration_s, 'W')}" if energy.duration_s else ""
    idle = "" if idle_w is None else f", idle {si(idle_w, 'W')}"
    return (
        f"{si(energy_j, 'J')} of {', '.join(domains)} in {energy.duration_s:.1f} s, "
        f"{count(energy.steps, 'step')}, {count(energy.samples, 'sample')}{mean}{idle}"
    )


def _sensor(sensor: SensorEnergy, reason: str) -> str:
    """Return one sensor as text: its energy and how it was obtained, its powers, and what makes them doubtful."""
    parts = [f"none: {reason}" if sensor.energy_J is None else f"{si(sensor.energy_J, 'J')} by {_method(sensor)}"]
    powers = (("mean", sensor.mean_W), ("p95", sensor.p95_W), ("peak", sensor.peak_W), ("idle", sensor.idle_W))
    parts += [f"{name} {si(value, 'W')}" for name, value in powers if value is not None]
    if sensor.accuracy_percent is not None:
        parts.append(f"±{sensor.accuracy_percent:g}% as documented")
    if sensor.begin_ns is not None and sensor.coverage < 1:
        parts.append(f"{count(sensor.n, 'reading covers', 'readings cover')} {sensor.coverage:.1%}")
    parts += [count(number, what) for what, number in (("gap", sensor.gaps), ("wrap", sensor.wraps)) if number]
    parts += [_FLAGS[flag] for flag in sensor.flags if flag != "gaps"]
    if sensor.scope:
        parts.append(f"covers {sensor.scope}")
    return ", ".join(parts)


def _method(sensor: SensorEnergy) -> str:
    """Return how the energy was obtained, with the alternative figure if there is one."""
    if sensor.method != "counter" or sensor.polled_J is None:
        return sensor.method or "-"
    ratio = "" if sensor.ratio is None else f", ratio {sensor.ratio:.3g}"
    return f"counter (polled {si(sensor.polled_J, 'J')}{ratio})"


def _on(names: Sequence[str], node: int) -> str:
    """Return the name of a node as the beginning of that of a sensor; empty if there is one node."""
    return f"{names[node]} " if names else ""


def _conditions(state: Conditions, names: Sequence[str]) -> list[list[str]]:
    """Return the state of a device: mean and maximum of each quantity, and why its clocks were throttled."""
    of = f"{_on(names, state.node)}{state.meter} {state.device or state.id}"
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
        found.append(["THROTTLED", f"{of} reduced its clocks: {', '.join(state.slowdowns)}"])
    if words:
        found.append(["throttled by", f"{of}: {'; '.join(words)}"])
    return found
