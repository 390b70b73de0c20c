"""The views `kernels` and `ops`: statistics of what ran, a line for each kernel or op."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from benchmarker.api.errors import UserError
from benchmarker.display.profiles import SHARES, column_of, frame_table, headline, notes_on
from benchmarker.display.result import Part
from benchmarker.library.profiles.difference import difference
from benchmarker.library.profiles.filters import Filters
from benchmarker.library.profiles.view import Profiled
from benchmarker.page.page_model import Axis, Bars, Figure
from benchmarker.traces.formats.aten_cost import Causal

if TYPE_CHECKING:
    import pandas as pd

    from benchmarker.records.profile import Trace
    from benchmarker.tables.table import Table
    from benchmarker.traces.ingest import Ingested
    from benchmarker.traces.wall_time import Bound

MOST_BARS = 12
"""Rows that a figure shows, the first ones."""
KernelsBy = Literal["name", "shape", "launch", "category", "scope", "op", "phase", "device"]
OpsBy = Literal["op", "shape"]
Sort = Literal["busy", "total", "self", "count", "mean", "median", "max", "name"]
_COLUMNS: dict[KernelsBy, list[str]] = {
    "name": ["name", "category"],
    "shape": ["name", "shapes"],
    "launch": ["name", "launch"],
    "category": ["category"],
    "scope": ["leaf", "phase"],
    "op": ["op"],
    "phase": ["phase"],
    "device": ["device", "track"],
}
_WIDE = ("mean_ns", "p5_ns", "p95_ns", "min_ns", "std_ns", "flops", "bytes")
"""Columns that a table shows only with --wide."""
_DROPPED = (
    *("min", "p95", "p5", "std", "mean", "flops", "bytes", "rule", "flop/byte", "bytes known", "bytes/s"),
    *("FLOPs known", "flop/s", "program"),
    *("launch", "median", "self", "max", "total", "track", "phase", "category", "count"),
)
"""Columns that a narrow terminal does not show, the least important first."""
_HEADINGS = {
    "flop_per_s": "flop/s",
    "bytes_per_s": "bytes/s",
    "intensity": "flop/byte",
    "flops_share": "FLOPs known",
    "bytes_share": "bytes known",
}


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Statistics(Profiled):
    """Statistics of one profile, what it is bound by, and columns of the frame that only a wide table has."""

    trace: Trace
    bound: Bound | None
    only_wide: Sequence[str] = ()

    @property
    def figures(self) -> Sequence[Figure]:
        """The shares of the busy time of the first rows; none if there is no row."""
        frame = self.frame[:MOST_BARS]
        if "share" not in frame or not len(frame):
            return ()
        names = tuple(map(str, frame.iloc[:, 0]))
        left = f"The first {MOST_BARS} of {len(self.frame)} are drawn; the data table has all."
        return [
            Figure(
                "busy",
                f"Share of the busy time by {frame.columns[0]}",
                "Times are those under the profiler.",
                Axis("share of the busy time", "%", limit=(0.0,)),
                (Bars("share", 0, tuple(range(len(frame))), tuple(map(float, frame["share"]))),),
                self.table(),
                rows=names,
                left_out=left if len(self.frame) > MOST_BARS else "",
            )
        ]

    def parts(self, *, wide: bool = False, top: int = 0) -> Iterator[Part]:
        """Yield the line above the table, and the table."""
        if not len(self.frame):
            yield "nothing in the profile matches"
            return
        yield from headline(self.trace, self.bound)
        yield self.table(wide=wide)

    def table(self, *, wide: bool = False) -> Table:
        """Return the statistics, with the main columns unless `wide`."""
        kept = self.frame.dropna(axis=1, how="all")
        kept = kept.drop(columns=[name for name in SHARES if name in kept and (kept[name].dropna() == 1).all()])
        if not wide:
            kept = kept.drop(columns=[name for name in (*_WIDE, *self.only_wide) if name in kept])
            if "busy_ns" in kept:
                same = [name for name in ("total_ns", "self_ns") if (kept[name] == kept["busy_ns"]).all()]
                kept = kept.drop(columns=same)
        columns = {name: column_of(name, heading) for name, heading in _HEADINGS.items()}
        summed = ("share", "of the busy time") if "share" in self.frame else None
        return frame_table(self.frame, printed=list(kept), columns=columns, wide=wide, drop=_DROPPED, summed=summed)


class Kernels(Filters, frozen=True, kw_only=True):
    """Options of the view `kernels`."""

    by: KernelsBy = "name"
    rule: bool = False
    sort: Sort | None = None
    causal: Causal | None = None

    def of(self, results: Sequence[Path]) -> Profiled:
        """Return the statistics of one profile, or what differs between two."""
        from benchmarker.traces.profile_files import open_trace
        from benchmarker.traces.statistics import describe, work
        from benchmarker.traces.wall_time import bound_of

        columns = [*_COLUMNS[self.by], *(["rule"] if self.rule else [])]
        if len(_at_most_two(results)) == 2:
            return difference(results, columns, self, causal=self.causal, sort=self.sort)
        ingested = open_trace(results[0], self.causal)
        launch = ["launch"] if self.by == "name" else []
        table = describe(work(self.events(ingested.events)), columns, sole=launch)
        table["share"] = table["busy_ns"] / max(1, ingested.trace.busy_ns)
        return _statistics(
            table.rename(columns={"leaf": "scope"}), self.sort, ingested, bound_of(ingested.events), launch
        )


class Ops(Filters, frozen=True, kw_only=True):
    """Options of the view `ops`."""

    by: OpsBy = "op"
    sort: Sort | None = None
    causal: Causal | None = None

    def of(self, results: Sequence[Path]) -> Profiled:
        """Return the statistics of one profile, or what differs between two."""
        from benchmarker.traces.profile_files import open_trace
        from benchmarker.traces.statistics import ops

        further = ["shapes"] if self.by == "shape" else []
        if len(_at_most_two(results)) == 2:
            return difference(results, ["op", *further], self, column="op", causal=self.causal, sort=self.sort)
        ingested = open_trace(results[0], self.causal)
        chosen = self.events(ingested.events, "op")
        table = ops(chosen, further)
        if chosen is not ingested.events and "kernel_ns" in table:
            table = table[table["kernel_ns"] > 0].reset_index(drop=True)
        share = "device_ns" if "device_ns" in table else "busy_ns"
        table["share"] = table[share] / max(1, ingested.trace.busy_ns)
        return _statistics(table, self.sort, ingested)


def _at_most_two(results: Sequence[Path]) -> Sequence[Path]:
    if len(results) > 2:
        raise UserError(f"{len(results)} RESULTs were given; name one to show it, or two to see what differs")
    return results


def _statistics(
    table: pd.DataFrame,
    sort: Sort | None,
    ingested: Ingested,
    bound: Bound | None = None,
    only_wide: Sequence[str] = (),
) -> Statistics:
    sort = sort or "busy"
    by = next((name for name in (sort, f"{sort}_ns") if name in table), None)
    if by:  # otherwise keep the table's own order
        table = table.sort_values(by, ascending=sort == "name", kind="stable", ignore_index=True)
    notes = notes_on([ingested.trace], [""])
    return Statistics(frame=table, trace=ingested.trace, bound=bound, only_wide=only_wide, notes=notes)
