"""`benchmarker profile ops`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchmarker.cli.display.output import csv_option, json_option
from benchmarker.cli.display.profile_difference import show_difference
from benchmarker.cli.display.profile_filters import filter_options
from benchmarker.cli.display.profiles import (
    causal_option,
    from_result,
    one_or_two,
    print_statistics,
    sort_options,
    warn,
)

if TYPE_CHECKING:
    from benchmarker.cli.display.profile_filters import Filters
    from benchmarker.traces.formats.aten_cost import Causal


@click.command("ops")
@click.argument("results", metavar="RESULT [RESULT]", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--by",
    type=click.Choice(["op", "shape"]),
    default="op",
    show_default=True,
    help="A line for each op, or for each op and the shapes and types of its inputs.",
)
@filter_options
@causal_option
@sort_options
@json_option
@csv_option
def command(
    results: tuple[Path, ...],
    by: str,
    filters: Filters,
    causal: Causal | None,
    as_json: bool,
    as_csv: bool,
    **shown: Any,
) -> None:
    """Show the ops of a profile: the HLO instructions of JAX, or the ops of PyTorch.

    For an HLO instruction the table shows its program, opcode and scope; for an op, DEVICE is the busy time of the work
    it launched on a device, and KERNEL the sum of that work's durations, by which rates divide. FLOPs count matrix
    products, convolutions and attention. Bytes are the minimum that must be moved. Both are shown only if the profile
    contains the shapes.

    RESULT is a record of a profiled trial, an event table, or a profiler's trace file. With two RESULTs, the table
    shows what was added, is gone, or takes more or less time in the second, and its part of the whole difference, per
    step if both have steps.
    """
    from benchmarker.traces.statistics import ops

    further = ["shapes"] if by == "shape" else []
    if one_or_two(results):
        show_difference(
            results,
            ["op", *further],
            filters,
            column="op",
            causal=causal,
            top=shown["top"],
            wide=shown["wide"],
            as_json=as_json,
            as_csv=as_csv,
        )
        return
    ingested = from_result(results[0], causal)
    chosen = filters.events(ingested.events, "op")
    table = ops(chosen, further)
    if chosen is not ingested.events and "kernel_ns" in table:
        table = table[table["kernel_ns"] > 0].reset_index(drop=True)
    share = "device_ns" if "device_ns" in table else "busy_ns"
    table["share"] = table[share] / max(1, ingested.trace.busy_ns)
    warn([ingested.trace], [str(results[0])], aside=as_json or as_csv)
    print_statistics(table, ingested.trace, as_json=as_json, as_csv=as_csv, **shown)
