"""The views `idle`, `path` and `memory`: waits, critical path and memory over time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from benchmarker.display.profiles import NAMES, bound_text, column_of, frame_table, headline
from benchmarker.display.result import Part, Text
from benchmarker.formatting import count, si
from benchmarker.library.profiles.filters import Step
from benchmarker.library.profiles.view import Tables, nothing, opened
from benchmarker.tables.table import Table, number

if TYPE_CHECKING:
    import pandas as pd

    from benchmarker.records.profile import Trace
    from benchmarker.traces.wall_time import Bound

NO_MATCH = "nothing in the profile matches"
NO_DEVICE = "no accelerator executed anything in this profile: there is no launch queue, and no device that waits"
IdleBy = Literal["cause", "device", "step", "stream"]
_BY: dict[IdleBy, str] = {"cause": "causes", "device": "devices", "step": "steps", "stream": "streams"}
_TABLES = ("causes", "devices", "steps", "streams", "launches")
_IDLE_DROPPED = (
    *("early", "unknown", "copy", "collective", "other stream", "copies alone", "collectives alone", "kernel wait"),
    *("sync", "scope", "call", "short", "queue max", "p95 delay", "longest", "gaps", "op", "busy"),
)
"""Columns that a narrow terminal does not show, the least important first."""
_HEADINGS = {"delay_median_ns": "median delay", "delay_p95_ns": "p95 delay", "delay_max_ns": "max delay"}
_IDLE_COLUMNS = {name: column_of(name, heading) for name, heading in _HEADINGS.items()}
_IDLE_COLUMNS["queue_empty"] = number("queue_empty", "%")


class Idle(Struct, frozen=True, kw_only=True):
    """Options of the view `idle`."""

    by: IdleBy = "cause"
    device: str | None = None
    step: Step | None = None

    def of(self, results: Sequence[Path]) -> Tables:
        """Return why the device of one profile waits; the frame is what the view is `by`."""
        ingested, notes = opened(results)
        chosen = _tables(ingested.events, self.device, self.step)
        if chosen is None:
            known = ingested.events["kind"].isin(["kernel", "copy"]).any()
            return nothing(NO_MATCH if known else NO_DEVICE, ("bound", "shares", *_TABLES), notes)
        whole, tables = chosen
        return Tables(
            frame=tables[_BY[self.by]],
            values={"reason": None, "bound": whole.verdict, "shares": whole.shares},
            frames=tables,
            printed=[*_idle_parts(whole, tables, self.by, ingested.trace)],
            notes=notes,
        )


def _idle_parts(whole: Bound, tables: dict[str, pd.DataFrame], by: IdleBy, trace: Trace) -> Iterator[Part]:
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


class CriticalPath(Struct, frozen=True, kw_only=True):
    """Options of the view `path`."""

    step: Step | None = None

    def of(self, results: Sequence[Path]) -> Tables:
        """Return what determines when the steps of one profile end; the frame has what is on the path."""
        from benchmarker.traces.critical_path import critical_path, summed

        ingested, notes = opened(results)
        path = critical_path(ingested.events, self.step)
        if not len(path):
            has_device = ingested.events["kind"].isin(["kernel", "copy"]).any()
            names = ("path_ns", "steps", "kinds", "items", "segments")
            return nothing(NO_MATCH if has_device else NO_PATH, names, notes)
        steps = path.groupby("step")["time_ns"].sum()
        kinds = summed(path, ["kind", "category"]).drop(columns=["op", "scope"])
        items = summed(path, ["kind", "name", "category"])
        of_steps = [{"step": None if step < 0 else step, "path_ns": ns} for step, ns in steps.to_dict().items()]
        table = _path_table(items)
        return Tables(
            frame=items,
            values={"reason": None, "path_ns": int(steps.sum()), "steps": of_steps},
            frames={"kinds": kinds, "items": items, "segments": path},
            limited="items",
            printed=[*_path_parts(ingested.trace, steps, _path_table(kinds), table)],
            csv=table,
            notes=notes,
        )


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
MemoryBy = Literal["scope", "op", "category", "phase"]
_MEMORY_DROPPED = ("phase", "allocations", "before", "scope", "step", "op")
"""Columns that a narrow terminal does not show, the least important first."""
_BYTES = ("peak_allocated", "peak_reserved", "before", "bytes")


class Memory(Struct, frozen=True, kw_only=True):
    """Options of the view `memory`."""

    by: MemoryBy = "scope"
    device: str | None = None

    def of(self, results: Sequence[Path]) -> Tables:
        """Return the peak memory in one profile; the frame has what was allocated then."""
        from benchmarker.traces.statistics import at_peak, peaks, timeline

        ingested, notes = opened(results)
        whole = timeline(ingested.events)
        memory = whole if self.device is None else whole[whole["device"] == self.device].reset_index(drop=True)
        if not len(memory):
            return nothing(NO_MATCH if len(whole) else NO_MEMORY, ("peaks", "at_peak", "timeline"), notes)
        reached, held = peaks(memory), at_peak(memory, self.by)
        table = _memory_table(held)
        return Tables(
            frame=held,
            values={"reason": None},
            frames={"peaks": reached, "at_peak": held, "timeline": memory},
            limited="at_peak",
            printed=[_memory_table(reached), "", table],
            csv=table,
            notes=notes,
        )


def _memory_table(table: pd.DataFrame) -> Table:
    columns = {name: number(name, "B", name.replace("_", " ")) for name in _BYTES}
    return frame_table(table, columns=columns, drop=_MEMORY_DROPPED, summed=("bytes", "") if "bytes" in table else None)
