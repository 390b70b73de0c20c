"""Two profiles side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarker.api.errors import UserError
from benchmarker.cli.display.output import Output
from benchmarker.cli.display.profiles import column_of, frame_table, from_result, notes_on, plain
from benchmarker.display.result import Part, Text
from benchmarker.formatting import si
from benchmarker.tables.table import Column, Table, number

if TYPE_CHECKING:
    import pandas as pd

    from benchmarker.cli.display.profile_filters import Filters
    from benchmarker.traces.formats.aten_cost import Causal

_HEADINGS = {"before_ns": "before", "after_ns": "after", "difference_ns": "difference"}
_DROPPED = ("before n", "after n", "phase", "category")
"""Columns that a narrow terminal does not show, the least important first."""


def difference_output(
    results: Sequence[Path],
    by: Sequence[str],
    filters: Filters,
    *,
    column: str = "name",
    causal: Causal | None = None,
    sort: str | None = None,
    top: int,
    wide: bool,
) -> Output:
    """Return the lines of two profiles, grouped by columns, and what each contributes to their difference.

    Raises `UserError` if they are to be sorted by another column than the difference.
    """
    if sort:
        raise UserError(f"two RESULTs are sorted by their difference; leave --sort={sort} out")
    from benchmarker.traces.statistics import difference, work

    profiles = [from_result(result, causal) for result in results]
    per_step = all(profile.trace.steps for profile in profiles)
    steps = (profiles[0].trace.steps, profiles[1].trace.steps) if per_step else (1, 1)
    rows = [work(filters.events(profile.events, column)) for profile in profiles]
    table = difference(rows[0], rows[1], by, steps).rename(columns={"leaf": "scope"})
    notes = notes_on([profile.trace for profile in profiles], [str(result) for result in results])
    columns = {name: column_of(name, heading) for name, heading in _HEADINGS.items()}
    columns |= {f"{side}_count": number(f"{side}_count", heading=f"{side} n", form="g") for side in ("before", "after")}
    columns["difference_share"] = Column("difference_share", levels=("of all",), numeric=True, form="+.1%")
    summed = ("difference_share", "of the difference")
    whole = frame_table(table, columns=columns, wide=wide, drop=_DROPPED, summed=summed)
    return Output(_output(table, whole, per_step=per_step), plain(table[: top or None]), csv=whole, notes=notes)


def _output(table: pd.DataFrame, whole: Table, *, per_step: bool) -> Iterator[Part]:
    before, after = (table[name].sum() for name in ("before_ns", "after_ns"))
    yield Text(
        f"busy time{' per step' if per_step else ''}: before {si(before / 1e9, 's')}, after {si(after / 1e9, 's')}"
        f"{f' ({after / before - 1:+.1%})' if before else ''}; one profile of each, so no verdict",
        "  ",
    )
    if not len(table):
        yield "nothing in the profiles matches"
        return
    yield whole
