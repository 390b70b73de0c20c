"""Scaling as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from benchmarker.cli.display.output import print_table, print_text
from benchmarker.comparing.scaling_results import sentence, shared_notes, shown
from benchmarker.formatting import count, rounded, si
from benchmarker.records.step_times import longer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarker.comparing.scaling_results import Devices, Scalings, Series


def print_scalings(found: Scalings, *, wide: bool = False) -> None:
    """Print each series as a sentence, a table by number of devices, and what should make one doubt it."""
    shared = shared_notes(found.series) if found.series else []
    for series in found.series:
        _print(series, [note for note in series.notes if note not in shared], wide=wide)
        click.echo()
    for note in shared:
        print_text(f"note (all): {note}", "  ")
    print_devices(found.devices, wide=wide)
    for note in found.notes:
        print_text(f"note: {note}", "  ")
    for text in found.left_out:
        print_text(f"left out: {text}", "  ")


def _percent(share: float) -> str:
    return f"{rounded(100 * share, 3)}%"


def print_devices(found: Sequence[Devices], *, wide: bool = False) -> None:
    """Print a table of the devices of each case of independent devices, and which of them is the slowest."""
    for case in found:
        print_text(f"{case.name} ({count(case.trials, 'trial')})", "  ")
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
        print_table(["device", "alone", "all at once", "contention", "score"], rows, wide=wide)
        print_text(f"  slowest: {case.slowest}", "    ")
        for note in case.notes:
            print_text(f"  note: {note}", "    ")
        click.echo()


def _print(series: Series, notes: Sequence[str], *, wide: bool) -> None:
    print_text(series.name, "  ")
    print_text(f"  {sentence(series)}", "    ")
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
    print_table(headings, rows, drop=["trials", "samples"], wide=wide)
    split = [(point.devices, point.split) for point in series.points if point.split]
    if split:
        print_text("  efficiency = size x contention x imbalance x communication", "    ")
        rows = [
            [
                str(devices),
                *map(_percent, (each.size, each.contention, each.imbalance, each.communication, each.product)),
                *(["-", "-"] if each.score is None else [f"{each.slowest}, {longer(each.score)}", f"{each.score:.2f}"]),
            ]
            for devices, each in split
        ]
        headings = ["devices", "size", "contention", "imbalance", "communication", "product", "slowest", "score"]
        print_table(headings, rows, drop=["product"], wide=wide)
    for note in notes:
        print_text(f"  note: {note}", "    ")
