"""`benchmarker profile ops`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchmarker.cli.display.output import Output, View
from benchmarker.cli.display.profile_statistics import statistics, statistics_options
from benchmarker.cli.options.types import Choice

if TYPE_CHECKING:
    import pandas as pd

    from benchmarker.cli.display.profile_filters import Filters
    from benchmarker.traces.ingest import Ingested


@click.command("ops")
@click.option(
    "--by",
    type=Choice(["op", "shape"]),
    default="op",
    show_default=True,
    help="A line for each op, or for each op and the shapes and types of its inputs.",
)
@statistics_options
def command(
    results: tuple[Path, ...], by: str, filters: Filters, title: str | None, top: int, view: View, **options: Any
) -> Output:
    """Show the ops of a profile: the HLO instructions of JAX, or the ops of PyTorch.

    For an HLO instruction the table shows its program, opcode and scope; for an op, DEVICE is the busy time of the work
    it launched on a device, and KERNEL the sum of that work's durations, by which rates divide. FLOPs count matrix
    products, convolutions and attention. Bytes are the minimum that must be moved. Both are shown only if the profile
    contains the shapes.

    RESULT is a record of a profiled trial, an event table, or a profiler's trace file. With two RESULTs, the table
    shows what the second added, removed, slowed down or sped up, with its share of the total difference, per step if
    both have steps.
    """
    further = ["shapes"] if by == "shape" else []

    def describe(ingested: Ingested) -> tuple[pd.DataFrame, None]:
        from benchmarker.traces.statistics import ops

        chosen = filters.events(ingested.events, "op")
        table = ops(chosen, further)
        if chosen is not ingested.events and "kernel_ns" in table:
            table = table[table["kernel_ns"] > 0].reset_index(drop=True)
        share = "device_ns" if "device_ns" in table else "busy_ns"
        table["share"] = table[share] / max(1, ingested.trace.busy_ns)
        return table, None

    return statistics(results, ["op", *further], filters, describe, "op", title=title, top=top, view=view, **options)
