"""The environments of the sides: first what differs, then, folded, what is the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from benchmarker.formatting import some
from benchmarker.machine import description
from benchmarker.page.page_model import Listing, Section
from benchmarker.page.study import Study
from benchmarker.records.environment import environment_of
from benchmarker.records.record import Record
from benchmarker.tables.table import Cell, Column, Table

MOST_SIDES = 6
MOST_VALUES = 3
MOST_NOISE = 40
_MOMENTARY = ("load_average_1min", "steal_percent", "swap_used_bytes")
"""Properties that change from moment to moment; the interference counters of each trial cover them."""

_SAME = {"model": "machine", "cpu.model": "processor", "cpu.usable_cores": "usable_cores"}
"""Properties that the environment of a record has under another name."""


def environment(study: Study) -> Section:
    """Return the section on the machine, device, versions and settings of each side."""
    sides = {
        side or "all trials": [record for group in groups for record in group.records]
        for side, groups in study.sides.items()
    }
    found = {
        name: [_properties(record) for record in _distinct(records)]
        for name, records in list(sides.items())[:MOST_SIDES]
    }
    names = list(dict.fromkeys(key for several in found.values() for each in several for key in each))
    different, single, equal = [], [], []
    for name in names:
        values = [list(dict.fromkeys(each[name] for each in several if name in each)) for several in found.values()]
        words = name if name.startswith(("variable ", "setting ")) else name.replace("_", " ")
        row = (words, *(_cell(each) for each in values))
        if len({value for each in values for value in each}) > 1:
            different.append(row)
        elif not all(values):
            single.append(row)
        else:
            equal.append((row[0], row[1]))
    columns = (Column("property"), *(Column(name) for name in found))
    parts = []
    if different or single:
        table = Table(columns, tuple(different + single), marked=frozenset(range(len(different))))
        caption = "Highlighted rows differ. " * bool(different) + (
            "The other rows apply to some sides only, such as a framework's libraries." * bool(single)
        )
        parts.append(Listing("What differs" if different else "What only some sides have", table, caption.strip()))
    if equal:
        table = Table((Column("property"), Column("value")), tuple(equal))
        parts.append(Listing(f"What is the same ({_count(len(equal))})", table, folded=True))
    parts += _noise(study)
    lead = []
    if len(sides) > 1:
        lead.append(
            f"{_count(len(different))} differ{'s' * (len(different) == 1)} between the sides or within one."
            if different
            else "Every property that all sides have is the same."
        )
    if len(sides) > MOST_SIDES:
        lead.append(f"Only the first {MOST_SIDES} of {len(sides)} sides are shown.")
    return Section("environment", "Environment", tuple(lead), tuple(parts))


def _count(number: int) -> str:
    return f"{number} {'property' if number == 1 else 'properties'}"


def _distinct(records: Iterable[Record]) -> Iterable[Record]:
    """Return a trial of each environment, because many trials have the same."""
    found: dict[bytes, Record] = {}
    for record in records:
        machine = msgspec.structs.replace(record.machine, **dict.fromkeys(_MOMENTARY, 0))
        around = (machine, record.software, record.device, record.types, record.suite and record.suite.id)
        found.setdefault(msgspec.json.encode(around), record)
    return found.values()


def _properties(record: Record) -> dict[str, str]:
    """Return the constant properties of a trial's environment, by name, as text."""
    here = record.machine
    found = {name: _text(value) for name, value in environment_of(record).items() if value is not None}
    for name, value in _flat(msgspec.to_builtins(here)):
        if name not in _MOMENTARY and not name.endswith(".processes"):
            found.setdefault(_SAME.get(name, name), _text(value))
    found |= {"suite": str(record.suite.id)} if record.suite else {}
    found |= dict(_flat_texts("variable", record.software.variables))
    if record.types:
        found |= dict(_flat_texts("setting", record.types.settings))
    if record.device:
        more = msgspec.to_builtins(record.device)
        found |= {f"device {name}": _text(more[name]) for name in ("platform", "uuid", "pci", "memory_bytes")}
    return found


def _flat(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Yield the leaves of nested values, by path."""
    pairs: Iterable[tuple[object, object]] | None = None
    if isinstance(value, Mapping):
        pairs = value.items()
    elif isinstance(value, list):
        pairs = enumerate(value)
    if pairs is None:
        yield path, value
        return
    for key, each in pairs:
        yield from _flat(each, f"{path}.{key}" if path else str(key))


def _flat_texts(kind: str, values: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    return ((f"{kind} {name}", value) for name, value in values.items())


def _text(value: object) -> str:
    return "unknown" if value is None else str(value)


def _cell(values: Sequence[str]) -> Cell:
    return some(values, MOST_VALUES) or "-"


def _noise(study: Study) -> list[Listing]:
    """List the causes of timing noise on each host."""
    found = {
        (record.machine.host, sentence): None
        for record in study.records
        for sentence in description.noise(record.machine)
    }
    if not found:
        return []
    rows, more = list(found)[:MOST_NOISE], len(found) - MOST_NOISE
    rest = ("", f"and {more} more") if more > 0 else None
    caption = "As found when the trials began."
    return [
        Listing(
            "Causes of timing noise",
            Table((Column("host"), Column("cause", prose=True)), tuple(rows), rest),
            caption,
            folded=len(rows) > 6,
        )
    ]
