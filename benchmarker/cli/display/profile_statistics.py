"""Statistics of a profile, a line for each kernel or op: the options, the table, and its form for print."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from benchmarker.api.errors import UserError
from benchmarker.cli.display.output import TOP, Output, View, output_options
from benchmarker.cli.display.profile_difference import difference_output
from benchmarker.cli.display.profile_filters import filter_options
from benchmarker.cli.display.profiles import (
    SHARES,
    causal_option,
    column_of,
    frame_table,
    from_result,
    headline,
    notes_on,
    overview,
    plain,
    warnings,
)
from benchmarker.cli.options.types import Choice
from benchmarker.display.result import Part
from benchmarker.formatting import scale
from benchmarker.tables.layout import shown
from benchmarker.tables.table import Column, Filled, Table

if TYPE_CHECKING:
    import pandas as pd

    from benchmarker.cli.display.profile_filters import Filters
    from benchmarker.records.profile import Trace
    from benchmarker.traces.formats.aten_cost import Causal
    from benchmarker.traces.ingest import Ingested
    from benchmarker.traces.wall_time import Bound

_F = TypeVar("_F", bound=Callable[..., Any])
SORTS = ("busy", "total", "self", "count", "mean", "median", "max", "name")
_WIDE = ("mean_ns", "p5_ns", "p95_ns", "min_ns", "std_ns", "flops", "bytes")
"""Columns that a table shows only with --wide."""
_DROPPED = (
    *("min", "p95", "p5", "std", "mean", "flops", "bytes", "rule", "flop/byte", "bytes/s", "flop/s", "program"),
    *("launch", "median", "self", "max", "total", "track", "phase", "category", "count"),
)
"""Columns that a narrow terminal does not show, the least important first."""
_HEADINGS = {
    "flop_per_s": "flop/s",
    "bytes_per_s": "bytes/s",
    "intensity": "flop/byte",
    "flops_share": "of time",
    "bytes_share": "of time",
}
_OF_A_CALL = ("mean", "median", "min", "max", "std")
"""Times of a call in formats for print, which have the same unit."""


_WIDE_HELP = "Show all columns: mean, percentiles, minimum, standard deviation, FLOPs, bytes."


def statistics_options(function: _F) -> _F:
    """Add the RESULTs, the filters, and the options of `statistics` to a command."""
    for option in (
        output_options(
            wide="Show all columns: mean, percentiles, minimum, standard deviation, FLOPs, bytes.",
            top=TOP,
            written=True,
        ),
        click.option("--sort", type=Choice(SORTS), help=f"Column to sort by. [default: {SORTS[0]}]"),
        causal_option,
        filter_options,
        click.argument("results", metavar="RESULT [RESULT]", nargs=-1, required=True, type=click.Path(path_type=Path)),
    ):
        function = option(function)
    return function


def statistics(
    results: Sequence[Path],
    columns: Sequence[str],
    filters: Filters,
    describe: Callable[[Ingested], tuple[pd.DataFrame, Bound | None]],
    column: str = "name",
    *,
    causal: Causal | None,
    sort: str | None,
    top: int,
    title: str | None,
    view: View,
) -> Output:
    """Return the statistics of one profile that `describe` returns, or what differs between two by `columns`.

    `--name` is searched in `column`. Raises `UserError` if there are more than two, or if an option applies only to
    one.
    """
    if title is not None and view.form in ("json", "csv"):
        raise UserError(f"--{view.form} and --title exclude each other; give one of them")
    is_for_print = title is not None or view.form not in (None, "json", "csv")
    if len(results) > 2:
        raise UserError(f"{len(results)} RESULTs were given; name one to show it, or two to see what differs")
    if len(results) == 2:
        if is_for_print or view.output:
            raise UserError("--format, --title and --output show one RESULT; name one, or leave them out")
        return difference_output(
            results, columns, filters, column=column, causal=causal, sort=sort, top=top, wide=view.wide
        )
    ingested = from_result(results[0], causal)
    table, bound = describe(ingested)
    sort = sort or SORTS[0]
    by = next((name for name in (sort, f"{sort}_ns") if name in table), None)
    if by:  # otherwise keep the table's own order
        table = table.sort_values(by, ascending=sort == "name", kind="stable", ignore_index=True)
    parts: Iterable[Part] = ["nothing in the profile matches"]
    whole = _table(table, wide=view.wide)
    if is_for_print and len(table):
        parts = [_for_print(table, whole.first(top)[1], ingested.trace, bound, title, top, wide=view.wide)]
    elif len(table):
        parts = [*headline(ingested.trace, bound), whole]
    notes = [] if is_for_print else notes_on([ingested.trace], [""])  # a table for print has its own
    return Output(parts, plain(table[: top or None]), csv=whole, notes=notes)


def _table(table: pd.DataFrame, *, wide: bool) -> Table:
    """Return the statistics, with the main columns unless `wide`."""
    kept = table.dropna(axis=1, how="all")
    kept = kept.drop(columns=[name for name in SHARES if name in kept and (kept[name].dropna() == 1).all()])
    if not wide:
        kept = kept.drop(columns=[name for name in _WIDE if name in kept])
        if "busy_ns" in kept:
            same = [name for name in ("total_ns", "self_ns") if (kept[name] == kept["busy_ns"]).all()]
            kept = kept.drop(columns=same)
    columns = {name: column_of(name, heading) for name, heading in _HEADINGS.items()}
    summed = ("share", "of the busy time") if "share" in table else None
    return frame_table(table, printed=list(kept), columns=columns, wide=wide, drop=_DROPPED, summed=summed)


def _for_print(
    table: pd.DataFrame, more: str, trace: Trace, bound: Bound | None, title: str | None, top: int, *, wide: bool
) -> Table:
    """Lay the first lines out for print: names, calls, times, and grid and block where the profile has them."""
    chosen = table[: top or None]
    texts = chosen[[name for name in chosen.columns[: list(chosen.columns).index("count")] if name != "launch"]]
    named = frame_table(texts, wide=wide)
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
        notes=tuple(filter(None, [overview(trace, bound), more.partition(";")[0], *warnings(trace)])),
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
