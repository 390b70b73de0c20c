"""Records by configuration: those that share all requested factors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from benchmarker.records.factors import Factors, Value, factors_of

if TYPE_CHECKING:
    from benchmarker.records.record import Record


def environment_of(record: Record) -> dict[str, Value]:
    """Return what was found rather than requested: machine, device, versions."""
    return {
        "host": record.machine.host,
        "machine": record.machine.model,
        "processor": record.machine.cpu.model,
        # Each framework names a CPU differently; `processor` is the same in all.
        "device_name": record.device.name if record.device and record.device.platform != "cpu" else None,
        "python": record.software.python,
        "benchmarker": record.software.benchmarker,
        "commit": record.software.commit,
        "usable_cores": record.machine.cpu.usable_cores,
        "compute_threads": record.software.threads,
        **record.software.libraries,
    }


@dataclass(frozen=True, slots=True)
class Configuration:
    """The requested factors, and their trials."""

    factors: Factors
    records: tuple[Record, ...]


def configurations(records: Iterable[Record]) -> list[Configuration]:
    """Group records by requested factors, each trial once, in the order of the plans that they come from."""
    groups: dict[bytes, list[Record]] = {}
    keys: dict[bytes, bytes] = {}
    once = {record.trial_id: record for record in records}
    for record in sorted(once.values(), key=lambda record: (record.run_id, record.design.case_number, record.trial_id)):
        case = msgspec.json.encode(record.case)
        if case not in keys:
            keys[case] = msgspec.json.encode(factors_of(record.case))
        groups.setdefault(keys[case], []).append(record)
    return [Configuration(factors_of(group[0].case), tuple(group)) for group in groups.values()]
