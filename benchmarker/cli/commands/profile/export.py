"""`benchmarker profile export`."""

from __future__ import annotations

from pathlib import Path

import click

from benchmarker.cli.display.output import Output, Text, output_options
from benchmarker.formatting import clean
from benchmarker.traces.perfetto.annotated import write


@click.command("export")
@click.argument("result", metavar="RESULT", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Name of the trace file. [default: next to the event table]",
)
@output_options(tables=False)
def command(result: Path, output: Path | None) -> Output:
    """Export the profile of RESULT for the Perfetto viewer, with the scope of every event, and print the file name.

    RESULT is a record of a profiled trial, an event table, or a profiler's trace file. Without -o, the trace is stored
    next to the event table and is only rewritten if RESULT is newer.
    """
    written = write(result, output)
    hint = "open it at https://ui.perfetto.dev; the trace stays in the browser and is not sent anywhere"
    return Output([clean(str(written)), Text(hint, err=True)], {"path": str(written)})
