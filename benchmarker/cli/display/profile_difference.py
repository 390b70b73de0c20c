"""Two profiles side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchmarker.api.errors import UserError
from benchmarker.cli.display.output import print_json, print_table, print_text
from benchmarker.cli.display.profiles import NAMES, cell, cells, from_result, noting, plain, print_frame_csv
from benchmarker.formatting import si

if TYPE_CHECKING:
    from benchmarker.cli.display.profile_filters import Filters
    from benchmarker.traces.formats.aten_cost import Causal

_HEADINGS = {"before_ns": "before", "after_ns": "after", "difference_ns": "difference", "difference_share": "of all"}
_DROPPED = ("before n", "after n", "phase", "category")
"""Columns that a narrow terminal does not show, the least important first."""


def show_difference(
    results: Sequence[Path],
    by: Sequence[str],
    filters: Filters,
    *,
    column: str = "name",
    causal: Causal | None = None,
    sort: str | None = None,
    top: int,
    wide: bool,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Print the lines of two profiles, grouped by columns, and what each contributes to their difference.

    Raises `UserError` if they are to be sorted by another column than the difference.
    """
    if sort:
        raise UserError(f"two RESULTs are sorted by their difference; leave --sort={sort} out")
    from benchmarker.traces.statistics import difference, work

    found = [from_result(result, causal) for result in results]
    with noting([each.trace for each in found], [str(result) for result in results], aside=as_json or as_csv):
        per_step = all(each.trace.steps for each in found)
        steps = (found[0].trace.steps, found[1].trace.steps) if per_step else (1, 1)
        rows = [work(filters.events(each.events, column)) for each in found]
        table = difference(rows[0], rows[1], by, steps).rename(columns={"leaf": "scope"})
        shown = table.head(top) if top else table
        if as_json:
            print_json(plain(shown))
            return
        if as_csv:
            print_frame_csv(shown)
            return
        before, after = (table[name].sum() for name in ("before_ns", "after_ns"))
        print_text(
            f"busy time{' per step' if per_step else ''}: before {si(before / 1e9, 's')}, after {si(after / 1e9, 's')}"
            f"{f' ({after / before - 1:+.1%})' if before else ''}; one profile of each, so no verdict",
            "  ",
        )
        if not len(table):
            click.echo("nothing in the profiles matches")
            return
        headings = [_HEADINGS.get(str(name), str(name).replace("_count", " n")) for name in shown.columns]
        print_table(headings, cells(shown, wide=wide, text=_cell), drop=_DROPPED, cut=NAMES, wide=wide)
        if len(shown) < len(table):
            rest = table.iloc[len(shown) :]["difference_share"].sum()
            click.echo(f"and {len(table) - len(shown)} more, {rest:.1%} of the difference; --top=0 shows all")


def _cell(name: str, value: object) -> str:
    if name == "difference_share":
        return "-" if value != value else f"{value:+.1%}"
    if name.endswith("_count"):
        return f"{value:g}"
    return cell(name, value, whole=True)
