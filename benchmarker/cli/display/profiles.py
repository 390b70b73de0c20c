"""Options and output shared by the commands that show a profile."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, TypeVar

import click

from benchmarker.cli.display.output import Part, Text
from benchmarker.cli.display.progress import working
from benchmarker.cli.options.types import Choice
from benchmarker.comparing.profiled_parts import OUTSIDE
from benchmarker.formatting import count, si
from benchmarker.tables.shortening import apart, shortened

if TYPE_CHECKING:
    import pandas as pd

    from benchmarker.records.profile import Trace
    from benchmarker.traces.formats.aten_cost import Causal
    from benchmarker.traces.ingest import Ingested
    from benchmarker.traces.wall_time import Bound

_F = TypeVar("_F", bound=Callable[..., Any])

WIDEST = 56
"""Longer names are shortened in tables without --wide; JSON and CSV contain them in full."""
NAMES = ("name", "op", "opcode", "scope", "program", "leaf", "device", "track", "result")
"""Columns of names, which are shortened if they are too long; other texts wrap."""
_NULLABLE = ("phase", "shapes", "launch")
"""Columns of texts that may be unknown."""
SHARES = ("flops_share", "bytes_share")
"""Columns with the share of a line's time in which the FLOPs or bytes are known, shown unless it is all of it."""
_LEAST = 0.01
"""Smaller parts of the wall time are not listed."""
_UNITS = {"flop_per_s": "FLOP/s", "bytes_per_s": "B/s", "flops": "FLOP", "bytes": "B"}


causal_option = click.option(
    "--causal",
    type=Choice(["half", "full"]),
    help="FLOPs of causal attention: half (only what the mask keeps) or full. [default: half]",
)


def from_result(result: Path, causal: Causal | None = None) -> Ingested:
    """Return the trace of a result; a profiler's trace file takes a while to read."""
    with working(f"reading {result}"):
        from benchmarker.traces.profile_files import open_trace

        return open_trace(result, causal)


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
    if name in ("share", "purity", "of_roof", *SHARES):
        return f"{value:.1%}"
    if name in _UNITS:
        return si(value, _UNITS[name])
    if isinstance(value, float):
        return f"{value:.3g}"
    if value == "":
        return {"scope": OUTSIDE, "op": "(no op)", **dict.fromkeys(_NULLABLE, "-")}.get(name, "")
    return str(value) if whole else shortened(str(value), WIDEST)
