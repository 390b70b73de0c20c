"""Options and output shared by the commands that show a profile."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, TypeVar

import click

from benchmarker.api.errors import UserError
from benchmarker.cli.display.output import print_csv, print_json, print_table, print_text
from benchmarker.cli.display.progress import working
from benchmarker.cli.display.shortening import apart, shortened
from benchmarker.cli.options.types import Integer
from benchmarker.comparing.profiled_parts import OUTSIDE
from benchmarker.formatting import count, si

if TYPE_CHECKING:
    import pandas as pd

    from benchmarker.records.profile import Trace
    from benchmarker.traces.formats.aten_cost import Causal
    from benchmarker.traces.ingest import Ingested
    from benchmarker.traces.wall_time import Bound

_F = TypeVar("_F", bound=Callable[..., Any])

SORTS = ("total", "self", "busy", "count", "mean", "median", "max", "name")
TOP = 30
"""Lines of a table unless --top gives another number."""
WIDEST = 56
"""Longer names are shortened in tables without --wide; JSON and CSV contain them in full."""
_WIDE = ("mean_ns", "p5_ns", "p95_ns", "min_ns", "std_ns", "flops", "bytes")
"""Columns that a table shows only with --wide."""
NAMES = ("name", "op", "opcode", "scope", "program", "leaf", "device", "track", "result")
"""Columns of names, which are shortened if they are too long; other texts wrap."""
_DROPPED = (
    *("min", "p95", "p5", "std", "mean", "flops", "bytes", "rule", "flop/byte", "bytes/s", "flop/s", "program"),
    *("launch", "median", "self", "max", "total", "track", "phase", "category", "count"),
)
"""Columns that a narrow terminal does not show, the least important first."""
_NULLABLE = ("phase", "shapes", "launch")
"""Columns of texts that may be unknown."""
_SHARES = ("flops_share", "bytes_share")
"""Columns with the share of a line's time in which the FLOPs or bytes are known, shown unless it is all of it."""
_LEAST = 0.01
"""Smaller parts of the wall time are not listed."""
_UNITS = {"flop_per_s": "FLOP/s", "bytes_per_s": "B/s", "flops": "FLOP", "bytes": "B"}
_HEADINGS = {
    "flop_per_s": "flop/s",
    "bytes_per_s": "bytes/s",
    "intensity": "flop/byte",
    "flops_share": "of time",
    "bytes_share": "of time",
}


causal_option = click.option(
    "--causal",
    type=click.Choice(["half", "full"]),
    help="FLOPs of causal attention: the half of the products that the mask keeps, or all. [default: half]",
)
top_option = click.option(
    "--top", type=Integer(min=0), default=TOP, show_default=True, help="Maximum number of lines; 0 shows all."
)


def sort_options(function: _F) -> _F:
    """Add the options for the order, length and width of the table to a command."""
    for option in (
        top_option,
        click.option(
            "--wide",
            is_flag=True,
            help="Show all columns: mean, percentiles, minimum, standard deviation, FLOPs, bytes.",
        ),
        click.option("--sort", type=click.Choice(SORTS), default="busy", show_default=True, help="Column to sort by."),
    ):
        function = option(function)
    return function


def one_or_two(results: Sequence[Path]) -> bool:
    """Return whether there are two results. Raises `UserError` if there are more."""
    if len(results) > 2:
        raise UserError(f"{len(results)} RESULTs were given; name one to show it, or two to see what differs")
    return len(results) == 2


def from_result(result: Path, causal: Causal | None = None) -> Ingested:
    """Return the trace of a result; a profiler's trace file takes a while to read."""
    with working(f"reading {result}"):
        from benchmarker.traces.profile_files import open_trace

        return open_trace(result, causal)


def warn(traces: Sequence[Trace], names: Sequence[str], *, aside: bool) -> None:
    """Report what is missing from traces or was left out, above their table; if `aside`, on standard error."""
    for trace, name in zip(traces, names, strict=True):
        of = f" of {name}" if len(names) > 1 else ""
        if trace.separable:
            print_text(f"SEPARABLE profile{of}: the profiled program differs from the timed one", "  ", err=aside)
        for text in trace.missing:
            print_text(f"INCOMPLETE profile{of}: {text}", "  ", err=aside)
        for text in trace.notes:
            print_text(f"note{of}: {text}", "  ", err=aside)


def headline(trace: Trace, bound: Bound | None = None) -> None:
    """Print the line above a table: what was profiled, how its time is divided, and what it is bound by."""
    step_s = median(trace.step_ns or [0]) / 1e9
    steps = f"{count(trace.steps, 'step')}, median {si(step_s, 's')} under the profiler; " if trace.steps else ""
    whole = [each for each in trace.devices if not each.track]
    wall_ns = max(each.wall_ns for each in whole)
    busy, idle, wall = (si(ns / 1e9, "s") for ns in (trace.busy_ns, trace.idle_ns, wall_ns))
    if len(whole) == 1:
        devices = f"{whole[0].device}: wall {wall}, "
    else:
        devices = f"{len(whole)} devices: wall {wall}; all together "
    parts = f"; {bound_text(bound, 2)}" if bound else ""
    print_text(f"{steps}{devices}busy {busy} ({trace.busy_share:.0%}), idle {idle}{parts}", "  ")


def bound_text(bound: Bound, most: int = 0) -> str:
    """Return what a profile is bound by, and the largest parts of the wall time, at most that many (0: all)."""
    parts = [f"{name} {share:.0%}" for name, share in bound.shares.items() if share >= _LEAST]
    return f"{bound.verdict} ({', '.join(parts[: most or None])})"


def print_statistics(
    table: pd.DataFrame,
    trace: Trace,
    bound: Bound | None = None,
    *,
    sort: str,
    top: int,
    wide: bool,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Print statistics as a table (with the main columns unless `wide`), as JSON or as CSV."""
    column = next((name for name in (sort, f"{sort}_ns") if name in table), None)
    if column:  # otherwise keep the table's own order
        table = table.sort_values(column, ascending=sort == "name", kind="stable", ignore_index=True)
    chosen = table.head(top) if top else table
    if as_json:
        print_json(plain(chosen))
    elif as_csv:
        print_frame_csv(chosen)
    elif not len(table):
        click.echo("nothing in the profile matches")
    else:
        headline(trace, bound)
        shown = chosen.dropna(axis=1, how="all")
        shown = shown.drop(columns=[name for name in _SHARES if name in shown and (shown[name].dropna() == 1).all()])
        if not wide:
            shown = shown.drop(columns=[name for name in _WIDE if name in shown])
            if "busy_ns" in shown:
                same = [name for name in ("total_ns", "self_ns") if (shown[name] == shown["busy_ns"]).all()]
                shown = shown.drop(columns=same)
        rows = cells(shown, wide=wide)
        headings = [_HEADINGS.get(name, name.removesuffix("_ns")) for name in shown.columns]
        print_table(headings, rows, drop=_DROPPED, cut=NAMES, wide=wide)
        if len(chosen) < len(table):
            rest = table.iloc[len(chosen) :]
            share = f", {rest['share'].sum():.1%} of the busy time" if "share" in rest else ""
            click.echo(f"and {len(rest)} more{share}; --top=0 shows all")


def print_frame_csv(table: pd.DataFrame) -> None:
    """Print rows as CSV."""
    print_csv(table.columns, table.itertuples(index=False, name=None))


def plain(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return rows as JSON values; unknown values become null."""
    records = table.to_dict("records")
    return [{name: None if _is_unknown(name, value) else value for name, value in row.items()} for row in records]


def _is_unknown(name: str, value: Any) -> bool:
    return value == "" if name in _NULLABLE else isinstance(value, float) and not math.isfinite(value)


def cells(table: pd.DataFrame, *, wide: bool, text: Callable[[str, Any], str] | None = None) -> list[tuple[str, ...]]:
    """Return the rows of a table as texts, made by `text`; unless `wide`, long names are shortened."""
    made = text or (lambda name, value: cell(name, value, whole=True))
    columns = {str(name): [made(str(name), value) for value in values.tolist()] for name, values in table.items()}
    for name in () if wide else set(NAMES).intersection(columns):
        columns[name] = apart(columns[name], WIDEST)
    return list(zip(*columns.values(), strict=True))


def cell(name: str, value: Any, *, whole: bool = False) -> str:
    """Return a value as table text, formatted by the name of its column; unless `whole`, a long text is shortened."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if name.endswith("_ns"):
        return si(value / 1e9, "s")
    if name in ("share", "purity", "of_roof", *_SHARES):
        return f"{value:.1%}"
    if name in _UNITS:
        return si(value, _UNITS[name])
    if isinstance(value, float):
        return f"{value:.3g}"
    if value == "":
        return {"scope": OUTSIDE, "op": "(no op)", **dict.fromkeys(_NULLABLE, "-")}.get(name, "")
    return str(value) if whole else shortened(str(value), WIDEST)
