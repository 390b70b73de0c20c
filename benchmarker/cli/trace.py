"""`benchmarker trace`."""

from __future__ import annotations

from pathlib import Path

import click

from benchmarker.errors import UserError
from benchmarker.traces import annotated, places


@click.command("trace", short_help="Write a trace with scopes in it, for Perfetto's viewer.")
@click.argument("place", metavar="RESULT", type=click.Path(path_type=Path))
@click.option("-o", "--output", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False), help="Write it there.")
def command(place: Path, output: Path | None) -> None:
    """Write the trace of RESULT with the scope of every event in it, and print where it is.

    RESULT is a record, a table of events, or a trace of any framework. Without -o the file goes beside the table of
    events, and is not written again as long as it is newer than RESULT.
    """
    written = write(place, output)
    click.echo(str(written))
    click.echo("https://ui.perfetto.dev opens it, in the browser alone: the trace is not sent anywhere", err=True)


def write(place: Path, output: Path | None = None) -> Path:
    """The annotated trace of a place, written unless it is there and newer than its source."""
    path = output or places.annotated_path(place)
    if output and not output.parent.is_dir():
        raise UserError(f"there is no folder {output.parent}; make it first")
    if output or not _is_newer(path, place):
        annotated.write(places.events_of(place), path)
    return path


def _is_newer(path: Path, source: Path) -> bool:
    """Whether a file is newer than its source and, where that is a folder, than every file in it."""
    try:
        sources = [source, *(source.rglob("*") if source.is_dir() else ())]
        newest: int = max(each.stat().st_mtime_ns for each in sources if each != path)
        return path.stat().st_mtime_ns >= newest
    except OSError:
        return False
