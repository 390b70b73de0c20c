"""Scaling as tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from benchmarker.cli.display.output import Part, Text
from benchmarker.comparing.scaling_results import sentence, shared_notes, shown
from benchmarker.formatting import count, rounded, si
from benchmarker.records.step_times import longer
from benchmarker.tables.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarker.comparing.scaling_results import Devices, Scalings, Series


def scalings_output(found: Scalings, *, wide: bool = False) -> Iterator[Part]:
    """Yield each series as a sentence, a table by number of devices, and what should make one doubt it."""
    shared = shared_notes(found.series) if found.series else []
    for series in found.series:
        yield from _output(series, [note for note in series.notes if note not in shared], wide=wide)
        yield ""
    for note in shared:
        yield Text(f"note (all): {note}", "  ")
    yield from devices_output(found.devices, wide=wide)
    for note in found.notes:
        yield Text(f"note: {note}", "  ")
    for text in found.left_out:
        yield Text(f"left out: {text}", "  ")


def _percent(share: float) -> str:
    return f"{rounded(100 * share, 3)}%"


def devices_output(found: Sequence[Devices], *, wide: bool = False) -> Iterator[Part]:
    """Yield a table of the devices of each case of independent devices, and which of them is the slowest."""
    for case in found:
        yield Text(f"{case.name} ({count(case.trials, 'trial')})", "  ")
        rows = [
            [
                str(each.device),
                si(each.alone_s, "s"),
                si(each.together_s, "s"),
                _percent(each.alone_s / each.together_s),
                f"{each.score:.2f}",
            ]
            for each in case.devices
        ]
        yield Table.of(["device", "alone", "all at once", "contention", "score"], rows)
        yield Text(f"  slowest: {case.slowest}", "    ")
        for note in case.notes:
            yield Text(f"  note: {note}", "    ")
        yield ""


def _output(series: Series, notes: Sequence[str], *, wide: bool) -> Iterator[Part]:
    yield Text(series.name, "  ")
    yield Text(f"  {sentence(series)}", "    ")
    rows = [
        [
            str(point.devices),
            str(point.trials),
            str(point.samples),
            si(point.step_s, "s"),
            si(point.samples_per_s_per_device, "1/s"),
            shown(point.speedup),
            shown(point.efficiency, percent=True),
        ]
        for point in series.points
    ]
    headings = ["devices", "trials", "samples", "step time", "samples/s/device", "speed-up", "efficiency"]
    yield Table.of(headings, rows, drop=["trials", "samples"])
    split = [(point.devices, point.split) for point in series.points if point.split]
    if split:
        yield Text("  efficiency = size x contention x imbalance x communication", "    ")
        rows = [
            [
                str(devices),
                *map(_percent, (each.size, each.contention, each.imbalance, each.communication, each.product)),
                *(["-", "-"] if each.score is None else [f"{each.slowest}, {longer(each.score)}", f"{each.score:.2f}"]),
            ]
            for devices, each in split
        ]
        headings = ["devices", "size", "contention", "imbalance", "communication", "product", "slowest", "score"]
        yield Table.of(headings, rows, drop=["product"])
    for note in notes:
        yield Text(f"  note: {note}", "    ")
