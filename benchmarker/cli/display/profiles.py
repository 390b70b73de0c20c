"""Options and output shared by the commands that show a profile."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from benchmarker.cli.display.output import Output, View
from benchmarker.cli.display.progress import working
from benchmarker.cli.options.types import Choice, Integer, all_of
from benchmarker.library.profiles.filters import Phase
from benchmarker.library.profiling import profile
from benchmarker.traces.formats.aten_cost import Causal

if TYPE_CHECKING:
    from benchmarker.library.profiles.view import Profiled
    from benchmarker.library.profiling import View as Name
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
