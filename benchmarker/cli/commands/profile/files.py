"""`benchmarker profile import` and `profile export`."""

from collections.abc import Iterator
from pathlib import Path

import click

from benchmarker.api.errors import UserError, attempt
from benchmarker.cli.display.output import Output, output_options
from benchmarker.cli.display.profiles import causal_option, from_result
from benchmarker.cli.display.progress import working
from benchmarker.cli.options.results import result_argument
from benchmarker.cli.options.types import File, Folder, output_option
from benchmarker.display.result import Part, Text
from benchmarker.formatting import clean, count, shortened, si
from benchmarker.records.profile import Trace
from benchmarker.tables.shortening import WIDEST
from benchmarker.tables.table import Cell, Shown, Table, number
from benchmarker.traces.annotated import write
from benchmarker.traces.formats.aten_cost import Causal
from benchmarker.traces.ingest import Ingested


@click.command("import")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    metavar="FOLDER",
    type=Folder(),
    help="Folder for the event tables. [default: next to each trace]",
)
@click.option(
    "--capture",
    type=File(),
    help="PyTorch trace of the capture of this trace's CUDA graphs; it provides the op of each kernel.",
)
@causal_option
@output_options()
def import_command(files: tuple[Path, ...], output: Path | None, capture: Path | None, causal: Causal | None) -> Output:
    """Convert profiler traces to event tables, which the other commands of `profile` read.

    FILE is a trace of JAX's profiler (`.xplane.pb`, or the viewer's `.trace.json.gz`), of PyTorch's profiler, or any
    trace in Chrome's JSON format, with or without gzip compression; a report of Nsight Systems, exported with
    `nsys export --type=sqlite`; or a database or `*_kernel_trace.csv` of rocprofv3. An event table is a Parquet file.
    """
    from benchmarker.files import atomic
    from benchmarker.traces import profile_files

    made = []
    tables = {file: _table_path(file, output) for file in dict.fromkeys(files)}
    twice = [table for table in tables.values() if list(tables.values()).count(table) > 1]
    if twice:
        raise UserError(f"several of these files would become {twice[0]}; import them one by one, each with its own -o")
    for file, table in tables.items():
        try:
            ingested = _with_capture(file, capture, causal) if capture else from_result(file, causal)
        except UserError as error:
            click.echo(clean(f"benchmarker: error: {error}"), err=True)
            continue
        with attempt(f"cannot write {table}", "name another folder with -o"):
            table.parent.mkdir(parents=True, exist_ok=True)
            atomic.write(table, profile_files.encode(ingested))
        for text in ingested.trace.missing:
            click.echo(clean(f"INCOMPLETE profile of {file}: {text}"), err=True)
        made.append((file, table, ingested.trace))
    data = [{"file": str(file), "events": str(table), "trace": trace} for file, table, trace in made]
    parts = (part for imported in made for part in _imported(*imported))
    return Output(parts, data, 0 if len(made) == len(tables) else 2)


def _with_capture(file: Path, capture: Path, causal: Causal | None) -> Ingested:
    """Read a trace whose graphs were captured in another."""
    from benchmarker.traces.ingest import Expected, ingest

    with working(f"reading {file}"):
        return ingest(file, Expected(causal=causal or "half"), capture)


def _table_path(file: Path, output: Path | None) -> Path:
    """Return the path of the event table of a file."""
    from benchmarker.traces.profile_files import ANNOTATED, EVENTS, annotated_path

    beside = annotated_path(file)
    return (output or beside.parent) / (beside.name.removesuffix(ANNOTATED) + EVENTS)


def _imported(file: Path, events: Path, trace: Trace) -> Iterator[Part]:
    """Yield what was read, and how the time of each device and stream is divided."""
    busy = max(1, trace.busy_ns)
    yield (
        clean(
            f"{file}: {trace.framework or 'unknown framework'}, {count(trace.rows, 'row')}, "
            f"{trace.kernels} of them counted as busy time; "
            f"{trace.uncategorised_ns / busy:.1%} of the busy time without a category, "
            f"{trace.outside_ns / busy:.1%} outside any scope"
        )
    )
    for note in trace.notes:
        yield clean(f"  note: {note}")
    if moved := trace.communication_ns:
        yield (f"  communication {si(moved / 1e9, 's')}, {trace.hidden_ns / moved:.1%} of it hidden behind other work")
    rows: list[tuple[Cell, ...]] = [
        (
            Shown(track.device, shortened(track.device, WIDEST)),
            Shown(track.track, shortened(track.track or "all", WIDEST)),
            track.count,
            *(ns / 1e9 for ns in (track.busy_ns, track.idle_ns, track.wall_ns)),
            track.busy_ns / max(1, track.wall_ns),
        )
        for track in trace.devices
    ]
    times = (number(f"{name}_s", "s") for name in ("busy", "idle", "wall"))
    yield Table.of(["device", "stream", number("rows"), *times, number("busy of wall", "%")], rows)
    yield clean(f"event table: {events}")


@click.command("export")
@result_argument
@output_option("Name of the trace file. [default: next to the event table]")
@output_options(tables=False)
def export_command(result: Path, output: Path | None) -> Output:
    """Export the profile of RESULT for the Perfetto viewer, with the scope of every event, and print the file name.

    RESULT is a record of a profiled trial, an event table, or a profiler's trace file. Without -o, the trace is stored
    next to the event table and is only rewritten if RESULT is newer.
    """
    written = write(result, output)
    hint = "open it at https://ui.perfetto.dev; the trace stays in the browser and is not sent anywhere"
    return Output([clean(str(written)), Text(hint, err=True)], {"path": str(written)})
