"""The card of a machine as tables that fit 80 columns."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from benchmarker.display.machine import machine_rows
from benchmarker.display.result import Part, Text
from benchmarker.formatting import clean, si, with_interval
from benchmarker.records.ceilings import Ceiling
from benchmarker.roofline.card import Card, Copies, Launches, Loads
from benchmarker.roofline.roofs import vendor_peak
from benchmarker.stats.quantile_interval import Estimate
from benchmarker.tables.table import NOTHING, Cell, Column, Filled, Shown, Table, Value, interval, number

_OF_CARD = {"model", "processor", "cores", "caches of a core", "last-level cache", "memory", "virtualization"}
"""What of the machine stands on its card, beside its GPUs; `env` and the records have the rest."""


def card_output(found: Card) -> Iterator[Part]:
    """Yield the machine, its ceilings, launches, copies and loads, and what should make one doubt them."""
    rows = machine_rows(found.machine)
    yield Table.facts([row for row in rows if row[0] in _OF_CARD or row[0].startswith("GPU ")])
    yield ""
    yield from _ceilings(found)
    yield from _part("launches: one kernel, and many before one wait", found, "launches", _launches(found.launches))
    yield from _part("copies between host and device", found, "copies", _copies(found.copies))
    yield from _part("loads: each waits for the one before it", found, "loads", _loads(found.loads))
    for note in found.notes:
        yield Text(f"note: {clean(note)}", "  ")


def card_figures(found: Card) -> Table:
    """Return all values of a card in one table: what each is, of what, its interval, and its unit."""
    rows: list[tuple[Value, ...]] = []
    for each in found.ceilings:
        of = ("ceiling", f"{each.resource} {each.precision}", f"{each.framework} {each.execution}", str(each.device))
        rows += _figure(of, each, each.unit)
    for launches in found.launches:
        framework = f"{launches.framework} {launches.execution}"
        for name, one, unit in (
            ("enqueue", launches.enqueue_s, "s"),
            ("complete", launches.complete_s, "s"),
            ("kernels", launches.kernels_per_s, "1/s"),
        ):
            rows += _figure(("launch", name, framework, launches.device), one, unit)
    for copies in found.copies:
        for name, value, unit in (("latency", copies.latency_s, "s"), ("bandwidth", copies.bytes_per_s, "bytes/s")):
            what = f"{copies.direction} {copies.memory} {name}"
            rows += _figure(("copy", what, copies.framework, copies.device), value, unit)
    for loads in found.loads:
        of = ("load", f"{loads.level or '?'} {loads.bytes} bytes", loads.framework, "cpu")
        rows += _figure(of, loads.load_s, "s")
    columns = ["part", "figure", "framework", "device", "value", "low", "high", "unit"]
    return replace(Table.of(columns, rows), notes=tuple(f"note: {note}" for note in found.notes))


def _figure(of: tuple[Value, ...], one: Ceiling | Estimate | None, unit: str) -> list[tuple[Value, ...]]:
    return [(*of, one.value, one.low, one.high, unit)] if one else []


def _part(title: str, found: Card, name: str, table: Table) -> Iterator[Part]:
    yield title
    if table.rows:
        yield table
    else:
        yield Text(f"  none: {clean(found.reasons[name])}", "    ")
    yield ""


def _ceilings(found: Card) -> Iterator[Part]:
    for device, several in groupby(found.ceilings, key=lambda each: str(each.device)):
        yield from _part(f"ceilings of {clean(device)}", found, "ceilings", _highest(list(several)))
    if not found.ceilings:
        yield from _part("ceilings", found, "ceilings", Table.of([], []))


def _highest(several: Sequence[Ceiling]) -> Table:
    peaks = [vendor_peak(each) for each in several]
    texts = [with_interval(each.value, each.low, each.high, each.unit) for each in several]
    shares: list[Cell] = [peak and each.value / peak for each, peak in zip(several, peaks, strict=True)]
    filled: list[Filled] = [
        (Column("resource"), [each.resource for each in several]),
        (Column("precision"), [each.precision for each in several]),
        (Column("ceiling"), [Shown(each.value, text) for each, text in zip(several, texts, strict=True)]),
        *interval("ceiling", [(each.low, each.high) for each in several]),
        (Column("unit", only="data"), [each.unit for each in several]),
        *([(number("of vendor's peak", form=".0%"), shares)] if any(peaks) else []),
        (Column("framework"), [f"{each.framework} {each.execution}" for each in several]),
        (Column("method"), [each.method for each in several]),
    ]
    return Table.of_columns(filled, drop=["method"])


def _launches(several: Sequence[Launches]) -> Table:
    return Table.of_columns(
        [
            (Column("framework"), [f"{each.framework} {each.execution}" for each in several]),
            (Column("device"), [each.device for each in several]),
            *_values("enqueue", [each.enqueue_s for each in several], "s"),
            *_values("complete", [each.complete_s for each in several], "s"),
            *_values("kernels/s", [each.kernels_per_s for each in several], ""),
        ],
        drop=["device"],
    )


def _copies(several: Sequence[Copies]) -> Table:
    return Table.of_columns(
        [
            (Column("direction"), [each.direction for each in several]),
            (Column("memory"), [each.memory for each in several]),
            (Column("framework"), [each.framework for each in several]),
            *_values("latency", [each.latency_s for each in several], "s"),
            *_values("bandwidth", [each.bytes_per_s for each in several], "B/s"),
        ]
    )


def _loads(several: Sequence[Loads]) -> Table:
    return Table.of_columns(
        [
            (Column("from"), [each.level or NOTHING for each in several]),
            (Column("working set"), [Shown(each.bytes, si(each.bytes, "B")) for each in several]),
            *_values("a load", [each.load_s for each in several], "s"),
        ]
    )


def _values(name: str, several: Sequence[Estimate | None], unit: str) -> list[Filled]:
    """Return the columns of some values with their intervals."""
    cells = [
        Shown(each.value, with_interval(each.value, each.low, each.high, unit)) if each else NOTHING for each in several
    ]
    return [(Column(name), cells), *interval(name, [(each.low, each.high) if each else None for each in several])]
