"""`benchmarker profile ops`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchmarker.cli.display.output import csv_option, json_option
from benchmarker.cli.display.profiles import causal_option, from_result, print_statistics, sort_options, warn

if TYPE_CHECKING:
    from benchmarker.traces.formats.aten_cost import Causal


@click.command("ops")
@click.argument("result", metavar="RESULT", type=click.Path(path_type=Path))
@causal_option
@sort_options
@json_option
@csv_option
def command(result: Path, causal: Causal | None, as_json: bool, as_csv: bool, **shown: Any) -> None:
    """Show the ops of a profile: the HLO instructions of JAX, or the ops of PyTorch.

    For an HLO instruction the table shows its program, opcode and scope; for an op, DEVICE is the busy time of the work
    it launched on a device, and KERNEL the sum of that work's durations, by which rates divide. FLOPs count matrix
    products, convolutions and attention. Bytes are the minimum that must be moved. Both are shown only if the profile
    contains the shapes.

    RESULT is a record of a profiled trial, an event table, or a profiler's trace file.
    """
    from benchmarker.traces.statistics import ops

    ingested = from_result(result, causal)
    table = ops(ingested.events)
    warn([ingested.trace], [str(result)], aside=as_json or as_csv)
    print_statistics(table, ingested.trace, as_json=as_json, as_csv=as_csv, **shown)
