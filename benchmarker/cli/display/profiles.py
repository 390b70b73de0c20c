"""Options and output shared by the commands that show a profile, and the form of statistics for print."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from benchmarker.api.errors import UserError
from benchmarker.cli.display.output import Output, View, output_options
from benchmarker.cli.display.progress import working
from benchmarker.cli.options.types import Choice, Integer, all_of
from benchmarker.display.profiles import frame_table, overview, warnings
from benchmarker.formatting import scale
from benchmarker.library.profiles.filters import Phase
from benchmarker.library.profiles.statistics import Sort, Statistics
from benchmarker.library.profiles.view import TOP, Profiled
from benchmarker.library.profiling import View as Name
from benchmarker.library.profiling import profile
from benchmarker.tables.table import Column, Filled, Table
from benchmarker.traces.formats.aten_cost import Causal

if TYPE_CHECKING:
    from benchmarker.traces.ingest import Ingested

device_option = click.option("--device", help="Show only this device: gpu:0, cpu, ...")
step_option = click.option("--step", type=Integer(min=0), help="Show only this profiled step; the first is 0.")
causal_option = click.option(
    "--causal",
    type=Choice(get_args(Causal)),
    help="FLOPs of causal attention: half (only what the mask keeps) or full. [default: half]",
)


filter_options = all_of(
    click.option(
        "--name", metavar="PATTERN", help="Show only names that match this regular expression, ignoring case."
    ),
    click.option("--category", metavar="NAME", help="Show only this category: gemm, memory, ..."),
    click.option("--scope", help="Show only what is attributed to this scope."),
    click.option("--phase", type=Choice(get_args(Phase)), help="Show only this phase."),
    device_option,
    click.option("--stream", help="Show only this stream or thread."),
    step_option,
)
"""The options that choose what of a profile is shown."""


def from_result(result: Path, causal: Causal | None = None) -> Ingested:
    """Return the trace of a result; a profiler's trace file takes a while to read."""
    with working(f"reading {result}"):
        from benchmarker.traces.profile_files import open_trace

        return open_trace(result, causal)


def profile_of(name: Name, results: Sequence[Path], /, **options: Any) -> Profiled:
    """Return a view of profiles."""
    with working(f"reading {', '.join(map(str, results))}"):
        return profile(*results, view=name, **options)


def profile_output(name: Name, results: Sequence[Path], view: View, /, **options: Any) -> Output:
    """Return what a command prints of a view of profiles."""
    made = profile_of(name, results, **options)
    parts = made.parts(wide=view.wide, top=view.top)
    return Output(parts, lambda: made.rows(view.top), csv=made.table(wide=view.wide), notes=made.notes)


_OF_A_CALL = ("mean", "median", "min", "max", "std")
"""Times of a call in formats for print, which have the same unit."""


statistics_options = all_of(
    click.argument("results", metavar="RESULT [RESULT]", nargs=-1, required=True, type=click.Path(path_type=Path)),
    filter_options,
    causal_option,
    click.option("--sort", type=Choice(get_args(Sort)), help="Column to sort by. [default: busy]"),
    output_options(
        wide="Show all columns: mean, percentiles, minimum, standard deviation, FLOPs, bytes.",
        top=TOP,
        written=True,
    ),
)
"""The RESULTs, the filters, and the options of `statistics`."""


def statistics(name: Name, /, results: Sequence[Path], title: str | None, view: View, **options: Any) -> Output:
    """Return the statistics of one profile, or what differs between two.

    Raises `UserError` if an option applies only to one.
    """
    if title is not None and view.form in ("json", "csv"):
        raise UserError(f"--{view.form} and --title exclude each other; give one of them")
    is_for_print = title is not None or view.form not in (None, "json", "csv")
    if len(results) == 2 and (is_for_print or view.output):
        raise UserError("--format, --title and --output show one RESULT; name one, or leave them out")
    if not is_for_print:
        return profile_output(name, results, view, **options)
    made = profile_of(name, results, **options)
    assert isinstance(made, Statistics)
    return Output([_for_print(made, title, view)] if len(made.frame) else made.parts())


def _for_print(made: Statistics, title: str | None, view: View) -> Table:
    """Lay the first lines out for print: names, calls, times, and grid and block where the profile has them."""
    from benchmarker.tables.layout import shown  # with SciPy

    chosen = made.frame[: view.top or None]
    _, more = made.table().first(view.top)
    texts = chosen[[name for name in chosen.columns[: list(chosen.columns).index("count")] if name != "launch"]]
    named = frame_table(texts, wide=view.wide)
    columns: list[Filled] = [
        (Column(column.name), of) for column, of in zip(named.columns, zip(*named.rows, strict=True), strict=True)
    ]
    numbers = {"calls": [str(times) for times in chosen["count"].tolist()]}
    if "share" in chosen:
        numbers["share, %"] = [f"{100 * share:.1f}" for share in chosen["share"].tolist()]
    one = chosen["mean_ns"].median()
    for name, typical in {"total": chosen["total_ns"].median(), **dict.fromkeys(_OF_A_CALL, one)}.items():
        size, unit = scale(typical / 1e9, "s")
        values = (chosen[f"{name}_ns"] / 1e9 / size).tolist()
        numbers[f"{name}, {unit}"] = [shown(value, None) for value in values]
    columns += [(Column(name, numeric=True, levels=(name,)), of) for name, of in numbers.items()]
    columns += _launches(chosen["launch"].tolist()) if "launch" in chosen else []
    labels = len(texts.columns)
    return Table(
        tuple(column for column, _ in columns),
        tuple(zip(*(of for _, of in columns), strict=True)),
        title=title or "",
        labels=labels,
        notes=tuple(filter(None, [overview(made.trace, made.bound), more.partition(";")[0], *warnings(made.trace)])),
        drop=tuple(column.heading for column, _ in columns[:labels:-1]),
    )


def _launches(launches: Sequence[str]) -> list[Filled]:
    """Return columns with the grid and the block of each line; none if the profile has no launches."""
    found: list[Filled] = []
    for part in ("grid", "block") if any(launches) else ():
        parts = [re.search(rf"\b{part}=([\d,.]+)", launch) for launch in launches]
        texts = [each[1] if each else launch for each, launch in zip(parts, launches, strict=True)]
        found.append((Column(part), texts))
    return found
