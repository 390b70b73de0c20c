"""Scaling as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from benchmarker.cli.display.output import print_table, print_text
from benchmarker.comparing.scaling import sentence, shown
from benchmarker.formatting import si

if TYPE_CHECKING:
    from benchmarker.comparing.scaling import Scalings, Series


def print_scalings(found: Scalings, *, wide: bool = False) -> None:
    """Print each series as a sentence, a table by number of devices, and what should make one doubt it."""
    for series in found.series:
        _print(series, wide=wide)
        click.echo()
    for note in found.notes:
        print_text(f"note: {note}", "  ")
    for text in found.left_out:
        print_text(f"left out: {text}", "  ")


def _print(series: Series, *, wide: bool) -> None:
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
    for note in series.notes:
        print_text(f"  note: {note}", "    ")
