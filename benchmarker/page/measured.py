"""What was measured, on what and with what: the sides beside each other, with their differences marked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarker.formatting import shortened, si, some
from benchmarker.machine.description import restriction
from benchmarker.page.page_model import Listing, Section
from benchmarker.page.study import Group, Study, days
from benchmarker.records.record import Record
from benchmarker.tables.table import Cell, Column, Table

MOST_SIDES = 6
MOST_GLANCED = 3
LINE = 220
"""Characters of what a side is, at a glance."""
MOST_VALUES = 3
LONGEST = 120
MOST_LIBRARIES = 12


def measured(study: Study) -> Section:
    """Return the table of the machine, the software and the trials of each side."""
    sides = dict(list(study.sides.items())[:MOST_SIDES])
    different, same = _rows(study)
    rows: list[tuple[Cell, ...]] = [*different] if len(sides) > 1 else [*same]
    marked = set(range(len(different)))
    trials = [_trials(study, groups) for groups in sides.values()]
    rows += [(name, *(each[index] for each in trials)) for index, name in enumerate(("trials", "runs", "measured on"))]
    columns = (Column("property"), *(Column(side or "all trials") for side in sides))
    lead = [f"{_cases(study)}: {study.shared}." if study.shared else f"{_cases(study)}."]
    caption = "Rows marked with ≠ differ." if marked else ""
    if len(study.sides) > MOST_SIDES:
        caption = f"Only the first {MOST_SIDES} of {len(study.sides)} sides are shown. {caption}".strip()
    elif len(sides) > 1 and not marked:
        caption = "The sides do not differ in any of these properties."
    table = Table(columns, tuple(rows), marked=frozenset(marked))
    parts = [Listing("Sides" if len(sides) > 1 else "Conditions", table, caption)]
    if len(sides) > 1 and same:
        shared = Table((Column("property"), Column("value")), tuple(row[:2] for row in same))
        parts.append(Listing(f"{_same(study)} ({len(same)})", shared, folded=True))
    return Section("measured", "What was measured", tuple(lead), tuple(parts))


def at_a_glance(study: Study) -> tuple[tuple[str, str], ...]:
    """Return each side with what is different there, and what is the same on all; of a single side, what it is."""
    different, same = _rows(study)
    shared = _listed((name, value) for name, value, *_ in same if value != "none")
    if len(study.sides) == 1:
        return ((next(iter(study.sides)) or "measured on", shared),)
    sides = list(study.sides)[:MOST_GLANCED]
    told = [
        (side, _listed((row[0], row[at]) for row in different if row[at] != side)) for at, side in enumerate(sides, 1)
    ]
    if more := len(study.sides) - len(sides):
        told.append((f"{more} more", "see below"))
    return *told, (_same(study), shared)


def evidence(study: Study) -> Listing:
    """Return the results with the SHA-256 of their records, by which they can be recognised."""
    rows = [
        (
            study.origins[result][0],
            len(records),
            _cell(dict.fromkeys(record.machine.host for record in records)),
            study.origins[result][1] or "-",
        )
        for result, records in study.results
    ]
    columns = (
        Column("result"),
        Column("trials", numeric=True),
        Column("machines"),
        Column("SHA-256 of the records", command=True),
    )
    caption = "For the folder of a run, `cat RUN/2*.json | sha256sum` prints the same."
    return Listing("Records", Table(columns, tuple(rows)), caption, folded=True)


def _same(study: Study) -> str:
    return "The same on both" if len(study.sides) == 2 else "The same on all"


def _listed(named: Iterable[tuple[str, str]]) -> str:
    """Return values with their names, as many as a line holds."""
    texts = [f"{name} {value}" for name, value in named if value != "-"]
    kept = next((at for at in range(len(texts), 0, -1) if len("; ".join(texts[:at])) <= LINE), 1)
    return some(texts, kept, "; ") or "no difference in what records have"


def _rows(study: Study) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """Return the properties in which the sides differ, and those in which they do not, with the value of each side."""
    sides = list(study.sides.values())[:MOST_SIDES]
    found = [_facts([record for group in groups for record in group.records]) for groups in sides]
    names = list(dict.fromkeys(name for facts in found for name in facts))
    rows = [(name, *(_cell(facts.get(name, ())) for facts in found)) for name in names]
    return [row for row in rows if len(set(row[1:])) > 1], [row for row in rows if len(set(row[1:])) == 1]


def _cases(study: Study) -> str:
    number = len({group.case for group in study.groups})
    return "One case" if number == 1 else f"All {number} cases"


def _facts(records: Sequence[Record]) -> dict[str, dict[str, None]]:
    """Return the values of each property over the trials of a side, in order of appearance."""
    found: dict[str, dict[str, None]] = {}
    for record in records:
        for name, value in _properties(record):
            if value:
                found.setdefault(name, {})[value] = None
    return found


def _properties(record: Record) -> Iterable[tuple[str, str]]:
    """Yield the properties of a trial that a buyer asks for, as text; empty if there is none."""
    machine, software, device = record.machine, record.software, record.device
    where = machine.container or machine.virtualization
    yield "host", machine.host
    yield "machine", machine.model or ""
    yield "system", f"{machine.os}, {machine.kernel}" + (f", {where}" if where else "")
    yield "processor", machine.cpu.model
    yield "cores used", restriction(machine) or f"all {machine.cpu.logical_cores}"
    yield "threads", "" if software.threads is None else str(software.threads)
    yield "memory", si(machine.memory_bytes, "B")
    if device is None or device.platform == "cpu":
        yield "device", "the processor" if device else ""
    else:
        yield "device", device.name + (f", {si(device.memory_bytes, 'B')}" if device.memory_bytes else "")
        gpu = next((each for each in machine.gpus if each.uuid == device.uuid), None)
        yield "driver", (gpu and gpu.driver) or ""
        yield "power limit", si(gpu.power_limit_W, "W") if gpu and gpu.power_limit_W else ""
    yield "framework", f"{record.case.framework} {record.case.execution}"
    yield from list(software.libraries.items())[:MOST_LIBRARIES]
    yield "Python", software.python
    yield "benchmarker", software.benchmarker + (f" ({software.commit})" if software.commit else "")
    yield "suite", str(record.suite.id) if record.suite else "none"


def _cell(values: Iterable[str]) -> str:
    """Return the values of one side in one property."""
    return some([shortened(value, LONGEST) for value in values], MOST_VALUES, " | ") or "-"


def _trials(study: Study, groups: Sequence[Group]) -> tuple[str, str, str]:
    """Return how many trials of a side succeeded, how many runs they are from, and when they were measured."""
    records = [record for group in groups for record in group.records]
    ok = sum(record.error is None for record in records)
    runs = {record.run_id for record in records}
    unrun = sum(each.trials for each in study.planned.missing if each.run_id in runs) if len(study.sides) == 1 else 0
    asked = len(records) + unrun
    return f"{ok} of {asked} succeeded", str(len(runs)), days(records)
