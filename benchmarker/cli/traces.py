"""What the commands that show a profile share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from benchmarker.cli.output import clean, print_json, print_table, si
from benchmarker.cli.progress import working

if TYPE_CHECKING:
    import pandas as pd

    from benchmarker.traces.ingest import Ingested
    from benchmarker.traces.summary import Trace

_F = TypeVar("_F", bound=Callable[..., Any])

SORTS = ("total", "self", "busy", "count", "mean", "median", "max", "name")
_WIDEST = 60
"""Longer names are cut in tables; JSON and CSV have them whole."""
_UNITS = {"flop_per_s": "FLOP/s", "bytes_per_s": "B", "flops": "FLOP", "bytes": "B"}
_HEADINGS = {"flop_per_s": "flop/s", "bytes_per_s": "bytes/s", "intensity": "flop/byte"}


phase_option = click.option("--phase", type=click.Choice(["forward", "backward", "remat"]), help="Only this phase.")


def sort_options(function: _F) -> _F:
    """A decorator that gives a command the order and the length of its table."""
    for option in (
        click.option(
            "--top", type=click.IntRange(min=0), default=30, show_default=True, help="Lines; 0 for all of them."
        ),
        click.option("--sort", type=click.Choice(SORTS), default="busy", show_default=True, help="Column to sort by."),
    ):
        function = option(function)
    return function


def from_place(place: Path) -> Ingested:
    """The trace at a place; a profiler's own file takes a while to read."""
    with working(f"reading {place}"):
        from benchmarker.traces.places import open_trace

        return open_trace(place)


def warn(traces: Sequence[Trace], names: Sequence[str], *, aside: bool) -> None:
    """Say what is missing from traces, above the table that is drawn from them; `aside`, on standard error."""
    for trace, name in zip(traces, names, strict=True):
        for text in trace.missing:
            click.echo(clean(f"INCOMPLETE profile{f' of {name}' if len(names) > 1 else ''}: {text}"), err=aside)


def print_statistics(table: pd.DataFrame, sort: str, top: int, as_json: bool, as_csv: bool) -> None:
    """Statistics as a table for people, with as many lines as asked for, or whole as JSON or CSV."""
    column = sort if sort in table else f"{sort}_ns"
    if column not in table:
        column = str(table.columns[0])
    table = table.sort_values(column, ascending=sort == "name", kind="stable", ignore_index=True)
    chosen = table.head(top) if top else table
    if as_json:
        print_json(plain(chosen))
    elif as_csv:
        print_csv(chosen)
    elif not len(table):
        click.echo("nothing ran that is as asked for")
    else:
        shown = chosen.dropna(axis=1, how="all")
        rows = [[cell(name, value) for name, value in row.items()] for row in shown.to_dict("records")]
        print_table([_HEADINGS.get(name, name.removesuffix("_ns")) for name in shown.columns], rows)
        if len(chosen) < len(table):
            rest = table.iloc[len(chosen) :]
            share = f", {rest['share'].sum():.1%} of the busy time" if "share" in rest else ""
            click.echo(f"and {len(rest)} more{share}; --top=0 shows all")


def print_csv(table: pd.DataFrame) -> None:
    """Rows as CSV, each on one line: control characters in texts are made visible."""
    texts = table.select_dtypes(exclude="number")
    shown = texts.map(lambda value: clean(value) if isinstance(value, str) else value)
    click.echo(table.assign(**{str(name): shown[name] for name in texts}).to_csv(index=False), nl=False)


def plain(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as JSON takes them: what is not known is null."""
    records = table.to_dict("records")
    return [
        {name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in row.items()}
        for row in records
    ]


def cell(name: str, value: Any) -> str:
    """One value as a table shows it, by the name of its column."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if name.endswith("_ns"):
        return si(value / 1e9, "s")
    if name in ("share", "purity"):
        return f"{value:.1%}"
    if name in _UNITS:
        return si(value, _UNITS[name])
    if isinstance(value, float):
        return f"{value:.3g}"
    text = str(value)
    return text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"
