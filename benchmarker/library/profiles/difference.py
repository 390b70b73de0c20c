"""Two profiles side by side."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarker.api.errors import UserError
from benchmarker.display.profiles import column_of, frame_table, notes_on
from benchmarker.display.result import Part, Text
from benchmarker.formatting import si
from benchmarker.library.profiles.filters import Filters
from benchmarker.library.profiles.view import Profiled
from benchmarker.tables.table import Column, Table, number
from benchmarker.traces.formats.aten_cost import Causal

_HEADINGS = {"before_ns": "before", "after_ns": "after", "difference_ns": "difference"}
_DROPPED = ("before n", "after n", "phase", "category")
"""Columns that a narrow terminal does not show, the least important first."""


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Difference(Profiled):
    """The lines of two profiles, and what each contributes to their difference."""

    per_step: bool

    def parts(self, *, wide: bool = False, top: int = 0) -> Iterator[Part]:
        """Yield both busy times, and the lines."""
        before, after = (self.frame[name].sum() for name in ("before_ns", "after_ns"))
        yield Text(
            f"busy time{' per step' if self.per_step else ''}: before {si(before / 1e9, 's')}, "
            f"after {si(after / 1e9, 's')}{f' ({after / before - 1:+.1%})' if before else ''}; "
            "one profile of each, so no verdict",
            "  ",
        )
        yield self.table(wide=wide) if len(self.frame) else "nothing in the profiles matches"

    def table(self, *, wide: bool = False) -> Table:
        """Return the lines, the largest difference first."""
        columns = {name: column_of(name, heading) for name, heading in _HEADINGS.items()}
        for side in ("before", "after"):
            columns[f"{side}_count"] = number(f"{side}_count", heading=f"{side} n", form="g")
        columns["difference_share"] = Column("difference_share", levels=("of all",), numeric=True, form="+.1%")
        summed = ("difference_share", "of the difference")
        return frame_table(self.frame, columns=columns, wide=wide, drop=_DROPPED, summed=summed)


def difference(
    results: Sequence[Path],
    by: Sequence[str],
    filters: Filters,
    *,
    column: str = "name",
    causal: Causal | None = None,
    sort: str | None = None,
) -> Difference:
    """Return the lines of two profiles, grouped by the columns `by`; names are searched in `column`.

    Raises `UserError` if they are to be sorted by another column than the difference.
    """
    if sort:
        raise UserError(f"two RESULTs are sorted by their difference; leave --sort={sort} out")
    from benchmarker.traces import statistics
    from benchmarker.traces.profile_files import open_trace

    profiles = [open_trace(result, causal) for result in results]
    per_step = all(profile.trace.steps for profile in profiles)
    steps = (profiles[0].trace.steps, profiles[1].trace.steps) if per_step else (1, 1)
    rows = [statistics.work(filters.events(profile.events, column)) for profile in profiles]
    frame = statistics.difference(rows[0], rows[1], by, steps).rename(columns={"leaf": "scope"})
    notes = notes_on([profile.trace for profile in profiles], [str(result) for result in results])
    return Difference(frame=frame, per_step=per_step, notes=notes)
