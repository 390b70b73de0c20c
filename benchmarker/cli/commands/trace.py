"""`benchmarker trace`."""

from __future__ import annotations

from pathlib import Path

import click

from benchmarker.traces.perfetto.annotated_file import write


@click.command("trace", short_help="Write a trace with scopes in it, for Perfetto's viewer.")
@click.argument("result", metavar="RESULT", type=click.Path(path_type=Path))
@click.option("-o", "--output", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False), help="Write it there.")
def command(result: Path, output: Path | None) -> None:
    """Write the trace of RESULT with the scope of every event in it, and print where it is.

    RESULT is a record, a table of events, or a trace of any framework. Without -o the file goes beside the table of
    events, and is not written again as long as it is newer than RESULT.
    """
    written = write(result, output)
    click.echo(str(written))
    click.echo("https://ui.perfetto.dev opens it, in the browser alone: the trace is not sent anywhere", err=True)
