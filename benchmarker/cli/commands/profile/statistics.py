"""`benchmarker profile kernels` and `profile ops`: statistics of what ran."""

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
    from benchmarker.traces.wall_time import Bound


_KERNELS_BY = {
    "name": ["name", "category"],
    "shape": ["name", "shapes"],
    "launch": ["name", "launch"],
    "category": ["category"],
    "scope": ["leaf", "phase"],
    "op": ["op"],
    "phase": ["phase"],
    "device": ["device", "track"],
}


@click.command("kernels")
@click.option("--by", type=Choice(list(_KERNELS_BY)), default="name", show_default=True, help="Group by this.")
@click.option("--rule", is_flag=True, help="Also show the rule that determined each category.")
@statistics_options
def kernels_command(
    results: tuple[Path, ...],
    by: str,
    filters: Filters,
    rule: bool,
    title: str | None,
    top: int,
    view: View,
    **options: Any,
) -> Output:
    """Show what ran on the device in a profile: how often, how long, and its share of the busy time.

    RESULT is a record of a profiled trial, an event table, or a profiler's trace file. On a CPU, the kernels are the
    HLO instructions or the ops themselves. With two RESULTs, the table shows what the second added, removed, slowed
    down or sped up, with its share of the total difference, per step if both have steps.

    BUSY splits each moment evenly among the kernels that ran then; SHARE is relative to the busy time of the whole
    profile. TOTAL is the sum of durations including nested work, SELF excluding it; a column equal to BUSY is hidden.
    Mean, median, percentiles and extremes refer to SELF. Rates are FLOPs and bytes divided by the durations of the
    events for which they are known; OF TIME is the share of such events in the line's time, if below 100%. SHAPES are
    the inputs of the op that launched the kernel. LAUNCH, with --wide, is its grid, block, registers per thread, shared
    memory per block in bytes, and estimated occupancy.

    With --format, --title or --output, the table is laid out for print: calls, share, total, mean, median, extremes,
    standard deviation, and the grid and block if the profile has them.
    """
    columns = [*_KERNELS_BY[by], *(["rule"] if rule else [])]
    is_whole = view.wide or title is not None or view.form is not None  # the usual table has no room
    launch = ["launch"] if by == "name" and is_whole else []

    def describe(ingested: Ingested) -> tuple[pd.DataFrame, Bound | None]:
        from benchmarker.traces.statistics import describe, work
        from benchmarker.traces.wall_time import bound_of

        table = describe(work(filters.events(ingested.events)), columns, sole=launch)
        table["share"] = table["busy_ns"] / max(1, ingested.trace.busy_ns)
        return table.rename(columns={"leaf": "scope"}), bound_of(ingested.events)

    return statistics(results, columns, filters, describe, title=title, top=top, view=view, **options)


@click.command("ops")
@click.option(
    "--by",
    type=Choice(["op", "shape"]),
    default="op",
    show_default=True,
    help="A line for each op, or for each op and the shapes and types of its inputs.",
)
@statistics_options
def ops_command(
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
