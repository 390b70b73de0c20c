"""Records by configuration: the requested factors by name, and the records that share all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from benchmarker.api.case import Measuring
from benchmarker.formatting import value_text

if TYPE_CHECKING:
    from benchmarker.api.case import Case
    from benchmarker.records.record import Record

Value = bool | int | float | str | None
Factors = Mapping[str, Value]


_OF_CASE = (
    "problem",
    "framework",
    "execution",
    "mode",
    "precision",
    "device",
    "gpu",
    "devices",
    "nodes",
    "parallel",
    "independent",
    "threads",
)
_UNTIMED = {"profile", "profile_steps", "separable", "power", "power_hz", "power_min_s", "power_idle_s"}
"""Settings of a case that do not affect what is timed."""
_TIMED = tuple(name for name in Measuring.__struct_fields__ if name not in _UNTIMED)


def factors(case: Case) -> dict[str, Value]:
    """Return all requested factors as a flat dictionary: case fields, the problem's parameters, measuring settings."""
    found: dict[str, Value] = {name: getattr(case, name) for name in _OF_CASE}
    found |= case.params
    found["seed"] = case.seed
    for name in _TIMED:
        found[name] = getattr(case.measuring, name)
    return found


def work(case: Case) -> dict[str, Value]:
    """Return the factors that define what is computed; cases that differ in one of them do different work."""
    return {"problem": case.problem, "mode": case.mode, "precision": case.precision, **case.params}


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
            keys[case] = msgspec.json.encode(factors(record.case))
        groups.setdefault(keys[case], []).append(record)
    return [Configuration(factors(group[0].case), tuple(group)) for group in groups.values()]


def varying(several: Sequence[Factors]) -> list[str]:
    """Return the names of the factors that differ between some of the configurations."""
    names = dict.fromkeys(name for each in several for name in each)
    return [name for name in names if len({each.get(name) for each in several}) > 1]


def changes(before: Factors, after: Factors, names: Iterable[str]) -> list[str]:
    """Return how the named factors differ, as text, those that change alike together: `m, n, k 1024 → 512`."""
    alike: dict[str, list[str]] = {}
    for name in names:
        one, two = before.get(name), after.get(name)
        if one != two:
            alike.setdefault(f"{text(one)} → {text(two)}", []).append(name)
    return [f"{', '.join(several)} {change}" for change, several in alike.items()]


def label(these: Factors, names: Sequence[str]) -> str:
    """Format the named factors as text: `framework=jax m=256`."""
    return " ".join(f"{name}={text(these.get(name))}" for name in names if name in these)


def text(value: Value) -> str:
    """Format a factor's value for a table."""
    return "-" if value is None else value_text(value)


DEFAULTS = msgspec.structs.asdict(Measuring())
"""Default measuring settings; tables omit them."""
