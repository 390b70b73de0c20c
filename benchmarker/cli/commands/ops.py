"""`benchmarker ops`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from benchmarker.cli.display.output import csv_option, json_option
from benchmarker.cli.display.profiles import from_result, print_statistics, sort_options, warn


@click.command("ops", short_help="Show the HLO or aten ops of a profile.")
@click.argument("result", metavar="RESULT", type=click.Path(path_type=Path))
@sort_options
@json_option
@csv_option
def command(result: Path, as_json: bool, as_csv: bool, **shown: Any) -> None:
    """Show the ops of a profile: the HLO instructions of JAX, or the ops of PyTorch.

    An instruction is shown with its program, opcode and scope, an op with the time of what it launched on a device.
    FLOPs are those of matrix products and convolutions, bytes the least that must move; both as far as the shapes
    in the profile say them. RESULT is as for `kernels`.
    """
    from benchmarker.traces.statistics import ops

    ingested = from_result(result)
    table = ops(ingested.events)
    warn([ingested.trace], [str(result)], aside=as_json or as_csv)
    print_statistics(table, ingested.trace, as_json=as_json, as_csv=as_csv, **shown)
