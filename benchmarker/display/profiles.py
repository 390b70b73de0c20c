"""Frames as tables, and what is said of a profile above and below them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarker.comparing.profiled_parts import OUTSIDE
from benchmarker.display.result import Part, Text
from benchmarker.formatting import count, si
from benchmarker.tables.shortening import WIDEST, apart
from benchmarker.tables.table import Column, Filled, Shown, Table, cell_text, number

if TYPE_CHECKING:
    import pandas as pd

    from benchmarker.records.profile import Trace
    from benchmarker.traces.wall_time import Bound

NAMES = ("name", "op", "opcode", "scope", "program", "leaf", "device", "track", "result")
"""Columns of names, which are shortened if they are too long; other texts wrap."""
_NULLABLE = ("phase", "shapes", "launch")
"""Columns of texts that may be unknown."""
SHARES = ("flops_share", "bytes_share")
"""Columns with the share of a line's time in which the FLOPs or bytes are known, shown unless it is all of it."""
EMPTY = {"scope": OUTSIDE, "op": "(no op)", **dict.fromkeys(_NULLABLE, "-")}
"""What is printed for an empty text, by the name of its column."""
_LEAST = 0.01
"""Smaller parts of the wall time are not listed."""
_UNITS = {"flop_per_s": "FLOP/s", "bytes_per_s": "B/s", "flops": "FLOP", "bytes": "B"}


def notes_on(traces: Sequence[Trace], names: Sequence[str]) -> list[Text]:
    """Return what is missing from traces or was left out, which stands below what is printed."""
    named: dict[tuple[str, str], list[str]] = {}
    for trace, name in zip(traces, names, strict=True):
        for remark in _remarks(trace):
            named.setdefault(remark, []).append(name)
    return [
        Text(f"{kind} of {', '.join(of)}: {text}" if len(names) > 1 else f"{kind}: {text}", "  ")
        for (kind, text), of in named.items()
    ]


def warnings(trace: Trace) -> list[str]:
    """Return what is missing from a trace or was left out."""
    return [f"{kind}: {text}" for kind, text in _remarks(trace)]


def _remarks(trace: Trace) -> list[tuple[str, str]]:
    return [
        *([("SEPARABLE profile", "the profiled program differs from the timed one")] if trace.separable else []),
        *(("INCOMPLETE profile", text) for text in trace.missing),
        *(("note", text) for text in trace.notes),
    ]


def headline(trace: Trace, bound: Bound | None = None) -> Iterator[Part]:
    """Yield the line above a table; the notes below it say what a doubt is about."""
    doubt = "SEPARABLE" * trace.separable or "INCOMPLETE" * bool(trace.missing)
    yield Text(overview(trace, bound) + (f"; {doubt}: see below" if doubt else ""), "  ")


def overview(trace: Trace, bound: Bound | None = None) -> str:
    """Return in a line what was profiled, how its time is divided, and what it is bound by."""
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
    return f"{steps}{devices}busy {busy} ({trace.busy_share:.0%}), idle {idle}{parts}"


def bound_text(bound: Bound, most: int = 0) -> str:
    """Return what a profile is bound by, and the largest parts of the wall time, at most that many (0: all)."""
    parts = [f"{name} {share:.0%}" for name, share in bound.shares.items() if share >= _LEAST]
    return f"{bound.verdict} ({', '.join(parts[: most or None])})"


def plain(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return rows as JSON values; unknown values become null."""
    records = table.to_dict("records")
    return [{name: None if _is_unknown(name, value) else value for name, value in row.items()} for row in records]


def _is_unknown(name: str, value: Any) -> bool:
    return value == "" if name in _NULLABLE else isinstance(value, float) and not math.isfinite(value)


def frame_table(
    frame: pd.DataFrame,
    *,
    printed: Collection[str] | None = None,
    columns: Mapping[str, Column] = {},
    empty: Mapping[str, str] = EMPTY,
    wide: bool = False,
    drop: Iterable[str] = (),
    cut: Iterable[str] = NAMES,
    summed: tuple[str, str] | None = None,
) -> Table:
    """Return a frame as a table that has an order; CSV has also the columns that are not `printed`.

    The name of a column says how its values are formatted, unless `columns` does; a text that is `empty` has another in
    print. Unless `wide`, long names are shortened.
    """
    filled: list[Filled] = []
    for name, values in frame.items():
        column = columns.get(str(name)) or column_of(str(name))
        cells = [None if isinstance(value, float) and math.isnan(value) else value for value in values.tolist()]
        if printed is not None and name not in printed:
            column = replace(column, only="data")
        elif any(isinstance(cell, str) for cell in cells):
            texts = ["-" if cell is None else str(cell) or empty.get(str(name), "") for cell in cells]
            texts = apart(texts, WIDEST) if name in NAMES and not wide else texts
            column = replace(column, numeric=False)
            cells = [cell if cell == text else Shown(cell, text) for cell, text in zip(cells, texts, strict=True)]
        filled.append((column, cells))
    return replace(Table.of_columns(filled, drop=drop, cut=cut, ordered=True), summed=summed)


def column_of(name: str, heading: str = "") -> Column:
    """Return the column of a frame, whose name says how its values are formatted."""
    heading = heading or name.removesuffix("_ns").replace("_", " ")
    if name.endswith("_ns"):
        return number(name, heading=heading, form=_time)
    if name in ("share", "purity", "of_roof", *SHARES):
        return number(name, "%", heading)
    return number(name, _UNITS.get(name, ""), heading, "" if name in _UNITS else _plain_number)


def _time(nanoseconds: float) -> str:
    return si(nanoseconds / 1e9, "s")


def _plain_number(value: float) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def cell(name: str, value: Any) -> str:
    """Return a value as table text, formatted by the name of its column."""
    is_unknown = value is None or (isinstance(value, float) and math.isnan(value))
    return "-" if is_unknown else cell_text(EMPTY.get(name, "") if value == "" else value, column_of(name))
