"""`benchmarker profile idle`, `profile path` and `profile memory`: waits, critical path and memory over time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchmarker.cli.display.output import TOP, Output, output_options
from benchmarker.cli.display.profile_filters import device_option, step_option
from benchmarker.cli.display.profiles import (
    NAMES,
    bound_text,
    column_of,
    frame_table,
    from_result,
    headline,
    notes_on,
    plain,
)
from benchmarker.cli.options.results import result_argument
from benchmarker.cli.options.types import Choice
from benchmarker.display.result import Part, Text
from benchmarker.formatting import count, si
from benchmarker.tables.table import Table, number

if TYPE_CHECKING:
    import pandas as pd

    from benchmarker.records.profile import Trace
    from benchmarker.traces.wall_time import Bound


NO_DEVICE = "no accelerator executed anything in this profile: there is no launch queue, and no device that waits"
_BY = {"cause": "causes", "device": "devices", "step": "steps", "stream": "streams"}
_TABLES = ("causes", "devices", "steps", "streams", "launches")
_IDLE_DROPPED = (
    *("early", "unknown", "copy", "collective", "other stream", "copies alone", "collectives alone", "kernel wait"),
    *("sync", "scope", "call", "short", "queue max", "p95 delay", "longest", "gaps", "op", "busy"),
)
"""Columns that a narrow terminal does not show, the least important first."""
_HEADINGS = {"delay_median_ns": "median delay", "delay_p95_ns": "p95 delay", "delay_max_ns": "max delay"}
_IDLE_COLUMNS = {name: column_of(name, heading) for name, heading in _HEADINGS.items()}
_IDLE_COLUMNS["queue_empty"] = number("queue_empty", "%")


@click.command("idle")
@result_argument
@click.option("--by", type=Choice(list(_BY)), default="cause", show_default=True, help="Group by this.")
@device_option
@step_option
@output_options(top=TOP)
def idle_command(result: Path, by: str, device: str | None, step: int | None) -> Output:
    """Show why the device waits in a profile: how its wall time divides into work and idle time, by cause.

    Causes: host (nothing was queued, the next work was launched late); sync (the host waited for the device, and
    launched more only then); kernel wait (queued, and begun within 30 µs); other stream, copy, collective (queued until
    work of another stream had ended); unknown. OP, SCOPE and CALL are those of the work that most of the time waited
    for. The largest part of the wall time decides whether a step is host-bound, kernel-bound, or bound by another part.

    DELAY is from the end of a launch call to the begin of its work. SHORT counts calls that took longer than the work
    they launched. QUEUE is work that was launched and has not begun.

    With --by=stream, gaps are those between the work of one stream, and their causes those of Holistic Trace Analysis.

    RESULT is a record of a profiled trial, an event table, or a profiler's trace file.
    """
    ingested = from_result(result)
    notes = notes_on([ingested.trace], [str(result)])
    chosen = _tables(ingested.events, device, step)
    if chosen is None:
        known = ingested.events["kind"].isin(["kernel", "copy"]).any()
        reason = "nothing in the profile matches" if known else NO_DEVICE
        return Output([reason], {"reason": reason, **dict.fromkeys(("bound", "shares", *_TABLES))}, notes=notes)
    whole, tables = chosen

    def data() -> dict[str, Any]:
        plain_tables = {name: plain(table.astype(object)) for name, table in tables.items()}
        return {"reason": None, "bound": whole.verdict, "shares": whole.shares, **plain_tables}

    return Output(_idle_parts(whole, tables, by, ingested.trace), data, notes=notes)


def _idle_parts(whole: Bound, tables: dict[str, pd.DataFrame], by: str, trace: Trace) -> Iterator[Part]:
    yield from headline(trace)
    yield Text(f"{bound_text(whole)} of the wall time", "  ")
    yield _idle_table(tables[_BY[by]])
    if by == "cause":
        yield ""
        yield from _launches(tables["launches"])


def _tables(events: pd.DataFrame, device: str | None, step: int | None) -> tuple[Bound, dict[str, pd.DataFrame]] | None:
    """Return what the chosen work is bound by, and all tables; None if there is no such work."""
    from benchmarker.traces.intervals import Covered
    from benchmarker.traces.wall_time import bound, bounds, idle_gaps, launch_statistics, on_device, states, streams

    rows, of_step = on_device(events), events
    if not len(rows):
        return None
    gaps = idle_gaps(events)
    if device is not None:
        rows, gaps = rows[rows["device"] == device], gaps[gaps["device"] == device]
    if step is not None:
        rows, gaps, of_step = (table[table["step"] == step] for table in (rows, gaps, events))
    if not len(rows):
        return None
    causes = states(events, rows, gaps)
    return bound(causes), {
        "causes": causes,
        "devices": bounds(states(events, rows, gaps, "device"), "device"),
        "steps": bounds(states(events, rows, gaps, "step"), "step"),
        "streams": streams(events, rows),
        "launches": launch_statistics(events, rows, Covered.of(of_step, rows)),
    }


def _idle_table(table: pd.DataFrame) -> Table:
    """Return a table; columns that are empty or zero throughout are only in CSV."""
    shown = [name for name in table if name in ("queue_median", "step") or table[name].astype(bool).any()]
    return frame_table(table, printed=shown, columns=_IDLE_COLUMNS, drop=_IDLE_DROPPED, cut=(*NAMES, "call"))


def _launches(launches: pd.DataFrame) -> Iterator[Part]:
    if not len(launches):
        yield Text("no launch of this work is in the trace, so there are no launch delays and no queue")
        return
    yield _idle_table(launches)
    if early := int(launches["early"].sum()):
        yield Text(
            f"{count(early, 'launch call')} began after the launched work: the clocks of host and device disagree, "
            "so causes and delays may be wrong",
            "  ",
        )


NO_PATH = "no accelerator executed anything in this profile, and CPU traces contain no dependencies between ops"
_PATH_DROPPED = ("scope", "op", "longest", "category", "count")
"""Columns that a narrow terminal does not show, the least important first."""


@click.command("path")
@result_argument
@step_option
@output_options(top=TOP)
def path_command(result: Path, step: int | None, top: int) -> Output:
    """Show the critical path of the steps of a profile: the chain of work and waits that determines when they end.

    Only what is on the path makes a step shorter if it becomes faster. The first table shows the time on the path by
    kind: host (ops and calls of the host), launch delay (from the begin of a launch call to that of its work), kernel,
    copy, stream wait (between two works of one stream), event wait (after work of another stream), sync (the host
    returning from a wait for the device), unknown (before work whose launch is not in the trace; or the host is in no
    op and no call while the device works). The second shows what takes longest on it.

    Several steps are summed; --step shows one. JSON has every segment of the path, in order.

    RESULT is a record of a profiled trial, an event table, or a profiler's trace file.
    """
    from benchmarker.traces.critical_path import critical_path, summed

    ingested = from_result(result)
    notes = notes_on([ingested.trace], [str(result)])
    path = critical_path(ingested.events, step)
    if not len(path):
        has_device = ingested.events["kind"].isin(["kernel", "copy"]).any()
        reason = "nothing in the profile matches" if has_device else NO_PATH
        nothing = dict.fromkeys(("path_ns", "steps", "kinds", "items", "segments"))
        return Output([reason], {"reason": reason, **nothing}, notes=notes)
    steps = path.groupby("step")["time_ns"].sum()
    kinds = summed(path, ["kind", "category"]).drop(columns=["op", "scope"])
    items = summed(path, ["kind", "name", "category"])

    def data() -> dict[str, Any]:
        of_steps = [{"step": None if step < 0 else step, "path_ns": ns} for step, ns in steps.to_dict().items()]
        tables = {"kinds": plain(kinds), "items": plain(items[: top or None]), "segments": plain(path)}
        return {"reason": None, "path_ns": int(steps.sum()), "steps": of_steps, **tables}

    of_items = _path_table(items)
    parts = _path_parts(ingested.trace, steps, _path_table(kinds), of_items)
    return Output(parts, data, csv=of_items, notes=notes)


def _path_parts(trace: Trace, steps: pd.Series, kinds: Table, items: Table) -> Iterator[Part]:
    yield from headline(trace)
    of = "" if steps.index[0] < 0 else f" of {count(len(steps), 'step')}"
    yield Text(f"critical path{of}: {si(int(steps.sum()) / 1e9, 's')}", "  ")
    yield kinds
    yield ""
    yield items


def _path_table(table: pd.DataFrame) -> Table:
    """Return a table; columns that are empty throughout are only in CSV."""
    shown = [name for name in table if table[name].astype(bool).any()]
    empty = {**dict.fromkeys(table, "-"), "name": "(outside any op)"}
    return frame_table(table, printed=shown, empty=empty, drop=_PATH_DROPPED, summed=("share", "of the path"))


NO_MEMORY = (
    "no memory events in this profile; PyTorch records them with torch.profiler.profile(profile_memory=True), "
    "and those of JAX are not read"
)
_MEMORY_DROPPED = ("phase", "allocations", "before", "scope", "step", "op")
"""Columns that a narrow terminal does not show, the least important first."""
_BYTES = ("peak_allocated", "peak_reserved", "before", "bytes")


@click.command("memory")
@result_argument
@click.option(
    "--by",
    type=Choice(["scope", "op", "category", "phase"]),
    default="scope",
    show_default=True,
    help="Group what was allocated at the peak by this.",
)
@device_option
@output_options(top=TOP)
def memory_command(result: Path, by: str, device: str | None, top: int) -> Output:
    """Show the peak memory of each device in a profile, when it was reached, and what was allocated then.

    AT is the time of the peak since the first memory event; OP, SCOPE and STEP are those of the allocation that reached
    it. BEFORE is what was allocated before that event, RESERVED the device memory that the allocator holds. On a CPU,
    only allocations during the profile count. The second table adds up to the peak. JSON has every allocation and free
    over time.

    RESULT is a record of a profiled trial, an event table, or a profiler's trace file.
    """
    from benchmarker.traces.statistics import at_peak, peaks, timeline

    ingested = from_result(result)
    notes = notes_on([ingested.trace], [str(result)])
    whole = timeline(ingested.events)
    memory = whole if device is None else whole[whole["device"] == device].reset_index(drop=True)
    if not len(memory):
        reason = "nothing in the profile matches" if len(whole) else NO_MEMORY
        return Output([reason], {"reason": reason, **dict.fromkeys(("peaks", "at_peak", "timeline"))}, notes=notes)
    held = at_peak(memory, by)

    def data() -> dict[str, Any]:
        tables = {"peaks": peaks(memory), "at_peak": held[: top or None], "timeline": memory}
        return {"reason": None, **{name: plain(table.astype(object)) for name, table in tables.items()}}

    of_held = _memory_table(held)
    return Output([_memory_table(peaks(memory)), "", of_held], data, csv=of_held, notes=notes)


def _memory_table(table: pd.DataFrame) -> Table:
    columns = {name: number(name, "B", name.replace("_", " ")) for name in _BYTES}
    return frame_table(table, columns=columns, drop=_MEMORY_DROPPED, summed=("bytes", "") if "bytes" in table else None)
