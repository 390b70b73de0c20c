"""The energy of several nodes: the sums of what is known of each, from its own readings by its own clock."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from benchmarker.power.energy import Accounts
from benchmarker.records.energy import Energy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarker.records.energy import Conditions, MeterReport, SensorEnergy

_SENSOR = re.compile(r"energy\.sensors\[(\d+)\](.*)")
_SUMS = ("energy_J", "idle_W", "total_J", "total_idle_W")


def together(names: Sequence[str], accounts: Sequence[Accounts]) -> Accounts:
    """Return the energy parts of a record from those of each node.

    Energies and idle powers are sums. A sum is null if a part of it is; the reason then names the node, unless it is
    the same on all. The duration is that of the longest window, and flags are those of any node.
    """
    sensors: list[SensorEnergy] = []
    telemetry: list[Conditions] = []
    meters: list[MeterReport] = []
    reasons: dict[str, str] = {}
    for node, one in enumerate(accounts):
        for path, why in one.reasons.items():
            if found := _SENSOR.fullmatch(path):
                reasons[f"energy.sensors[{len(sensors) + int(found[1])}]{found[2]}"] = why
        sensors += [msgspec.structs.replace(each, node=node) for each in (one.energy.sensors if one.energy else [])]
        telemetry += [msgspec.structs.replace(each, node=node) for each in one.telemetry]
        meters += [msgspec.structs.replace(each, node=node) for each in one.meters]
    energies = [one.energy for one in accounts if one.energy]
    if not energies:
        why = _by_node(names, [one.reasons["energy"] for one in accounts])
        return Accounts(None, telemetry, meters, {"energy": why})
    sums: dict[str, float | None] = {}
    for name in _SUMS:
        values = [getattr(one.energy, name) if one.energy else None for one in accounts]
        known = [value for value in values if value is not None]
        sums[name] = sum(known) if len(known) == len(values) else None
        if sums[name] is None:
            lacking = [
                one.reasons[f"energy.{name}" if one.energy else "energy"] if value is None else ""
                for one, value in zip(accounts, values, strict=True)
            ]
            reasons[f"energy.{name}"] = _by_node(names, lacking)
    return Accounts(
        Energy(
            duration_s=max(each.duration_s for each in energies),
            steps=energies[0].steps,
            samples=energies[0].samples,
            domains=sorted({domain for each in energies for domain in each.domains}),
            energy_J=sums["energy_J"],
            idle_W=sums["idle_W"],
            total_domains=sorted({domain for each in energies for domain in each.total_domains}),
            total_J=sums["total_J"],
            total_idle_W=sums["total_idle_W"],
            sensors=sensors,
            flags=list(dict.fromkeys(flag for each in energies for flag in each.flags)),
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
