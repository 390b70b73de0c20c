"""Statistics of a profile, a line for each kernel or op: the options, the table, and its form for print."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from benchmarker.api.errors import UserError
from benchmarker.cli.display.output import csv_option, json_option, print_json, print_table
from benchmarker.cli.display.profile_difference import show_difference
from benchmarker.cli.display.profile_filters import filter_options
from benchmarker.cli.display.profiles import (
    NAMES,
    SHARES,
    causal_option,
    cells,
    from_result,
    headline,
    noting,
    overview,
    plain,
    print_frame_csv,
    top_option,
    warnings,
)
from benchmarker.cli.display.sheets import format_of, format_options, print_sheet
from benchmarker.cli.options.types import Choice
from benchmarker.formatting import scale
from benchmarker.tables.layout import shown
from benchmarker.tables.sheet import Cell, Column, Sheet

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


@dataclass(frozen=True, slots=True)
class Shown:
    """How statistics are shown: their order, length and width, and as what."""

    sort: str | None
    top: int
    wide: bool
    as_json: bool
    as_csv: bool
    form: str | None
    title: str | None
    output: Path | None

    @property
    def is_print(self) -> bool:
        """Whether they are laid out for print, or written to a file."""
        return any(each is not None for each in (self.form, self.title, self.output))

    @property
    def is_whole(self) -> bool:
        """Whether columns are shown that the usual table has no room for."""
        return self.wide or self.as_json or self.as_csv or self.is_print


def statistics_options(function: _F) -> _F:
    """Add the RESULTs, the filters, and the options that `shown_as` takes to a command."""
    for option in (
        csv_option,
        json_option,
        format_options,
        click.option(
            "--wide",
            is_flag=True,
            help="Show all columns: mean, percentiles, minimum, standard deviation, FLOPs, bytes.",
        ),
        top_option,
        click.option("--sort", type=Choice(SORTS), help=f"Column to sort by. [default: {SORTS[0]}]"),
        causal_option,
        filter_options,
        click.argument("results", metavar="RESULT [RESULT]", nargs=-1, required=True, type=click.Path(path_type=Path)),
    ):
        function = option(function)
    return function


def shown_as(**given: Any) -> Shown:
    """Return how statistics are to be shown; raises `UserError` if two options exclude each other."""
    asked = Shown(**given)
    if asked.as_json + asked.as_csv + asked.is_print > 1:
        raise UserError("--json, --csv, and --format, --title or --output exclude each other; give one")
    is_csv = format_of(asked.form, asked.output) == "csv" and asked.output is None
    return replace(asked, as_csv=True, form=None, title=None) if is_csv else asked


def show_statistics(
    results: Sequence[Path],
    columns: Sequence[str],
    filters: Filters,
    causal: Causal | None,
    show: Shown,
    describe: Callable[[Ingested], tuple[pd.DataFrame, Bound | None]],
    column: str = "name",
) -> None:
    """Print the statistics of one profile that `describe` returns, or what differs between two by `columns`.

    `--name` is searched in `column`. Raises `UserError` if there are more than two, or if an option applies only to
    one.
    """
    if len(results) > 2:
        raise UserError(f"{len(results)} RESULTs were given; name one to show it, or two to see what differs")
    if len(results) == 2:
        if show.is_print:
            raise UserError("--format, --title and --output show one RESULT; name one, or leave them out")
        show_difference(
            results,
            columns,
            filters,
            column=column,
            causal=causal,
            sort=show.sort,
            top=show.top,
            wide=show.wide,
            as_json=show.as_json,
            as_csv=show.as_csv,
        )
        return
    ingested = from_result(results[0], causal)
    table, bound = describe(ingested)
    sort = show.sort or SORTS[0]
    by = next((name for name in (sort, f"{sort}_ns") if name in table), None)
    if by:  # otherwise keep the table's own order
        table = table.sort_values(by, ascending=sort == "name", kind="stable", ignore_index=True)
    chosen = table.head(show.top) if show.top else table
    noted = [] if show.is_print else [ingested.trace]  # print has its own
    with noting(noted, [""] * len(noted), aside=show.as_json or show.as_csv):
        if show.as_json:
            print_json(plain(chosen))
        elif show.as_csv:
            print_frame_csv(chosen)
        elif not len(table):
            click.echo("nothing in the profile matches")
        elif show.is_print:
            sheet = _sheet(chosen, table, ingested.trace, bound, show)
            print_sheet(sheet, show.form, show.output, wide=show.wide)
        else:
            _print(chosen, table, ingested.trace, bound, wide=show.wide)


def _print(chosen: pd.DataFrame, table: pd.DataFrame, trace: Trace, bound: Bound | None, *, wide: bool) -> None:
    """Print the chosen lines of a table, with the main columns unless `wide`."""
    headline(trace, bound)
    kept = chosen.dropna(axis=1, how="all")
    kept = kept.drop(columns=[name for name in SHARES if name in kept and (kept[name].dropna() == 1).all()])
    if not wide:
        kept = kept.drop(columns=[name for name in _WIDE if name in kept])
        if "busy_ns" in kept:
            same = [name for name in ("total_ns", "self_ns") if (kept[name] == kept["busy_ns"]).all()]
            kept = kept.drop(columns=same)
    headings = [_HEADINGS.get(name, name.removesuffix("_ns")) for name in kept.columns]
    print_table(headings, cells(kept, wide=wide), drop=_DROPPED, cut=NAMES, wide=wide)
    if rest := _rest(chosen, table):
        click.echo(f"{rest}; --top=0 shows all")


def _rest(chosen: pd.DataFrame, table: pd.DataFrame) -> str:
    """Return what the lines that were left out are, empty if none was."""
    if len(chosen) == len(table):
        return ""
    rest = table.iloc[len(chosen) :]
    share = f", {rest['share'].sum():.1%} of the busy time" if "share" in rest else ""
    return f"and {len(rest)} more{share}"


def _sheet(chosen: pd.DataFrame, table: pd.DataFrame, trace: Trace, bound: Bound | None, show: Shown) -> Sheet:
    """Lay the chosen lines out for print: names, calls, times, and grid and block where the profile has them."""
    texts = chosen[[name for name in chosen.columns[: list(chosen.columns).index("count")] if name != "launch"]]
    columns: list[tuple[Column, Sequence[str]]] = [
        (Column((str(name),), is_number=False), of)
        for name, of in zip(texts.columns, zip(*cells(texts, wide=show.wide), strict=True), strict=True)
    ]
    columns.append((Column(("calls",)), [str(number) for number in chosen["count"].tolist()]))
    if "share" in chosen:
        columns.append((Column(("share, %",)), [f"{100 * share:.1f}" for share in chosen["share"].tolist()]))
    one = chosen["mean_ns"].median()
    for name, typical in {"total": chosen["total_ns"].median(), **dict.fromkeys(_OF_A_CALL, one)}.items():
        size, unit = scale(typical / 1e9, "s")
        values = (chosen[f"{name}_ns"] / 1e9 / size).tolist()
        columns.append((Column((f"{name}, {unit}",)), [shown(value, None) for value in values]))
    columns += _launches(chosen["launch"].tolist()) if "launch" in chosen else []
    return Sheet(
        title=show.title or "",
        columns=tuple(column for column, _ in columns),
        rows=tuple(tuple(map(Cell, row)) for row in zip(*(of for _, of in columns), strict=True)),
        labels=len(texts.columns),
        notes=tuple(filter(None, [overview(trace, bound), _rest(chosen, table), *warnings(trace)])),
        bold="",
        plain_headings=tuple(chosen.columns),
        plain_rows=tuple(chosen.itertuples(index=False, name=None)),
    )


def _launches(launches: Sequence[str]) -> list[tuple[Column, Sequence[str]]]:
    """Return columns with the grid and the block of each line; none if the profile has no launches."""
    found: list[tuple[Column, Sequence[str]]] = []
    for part in ("grid", "block") if any(launches) else ():
        parts = [re.search(rf"\b{part}=([\d,.]+)", launch) for launch in launches]
        texts = [each[1] if each else launch for each, launch in zip(parts, launches, strict=True)]
        found.append((Column((part,), is_number=False), texts))
    return found
