"""`benchmarker profile idle`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchmarker.cli.display.output import Output, Part, Text, output_options
from benchmarker.cli.display.profile_filters import device_option, step_option
from benchmarker.cli.display.profiles import NAMES, bound_text, cell, from_result, headline, notes_on, plain
from benchmarker.cli.options.types import Choice
from benchmarker.formatting import count
from benchmarker.tables.table import Table

if TYPE_CHECKING:
    import pandas as pd

    from benchmarker.records.profile import Trace
    from benchmarker.traces.wall_time import Bound

NO_DEVICE = "no accelerator executed anything in this profile: there is no launch queue, and no device that waits"
_BY = {"cause": "causes", "device": "devices", "step": "steps", "stream": "streams"}
_TABLES = ("causes", "devices", "steps", "streams", "launches")
_DROPPED = (
    *("early", "unknown", "copy", "collective", "other stream", "copies alone", "collectives alone", "kernel wait"),
    *("sync", "scope", "call", "short", "queue max", "p95 delay", "longest", "gaps", "op", "busy"),
)
"""Columns that a narrow terminal does not show, the least important first."""
_LIKE = {"queue_empty": "share", "call": "name"}
"""Columns that are formatted as another is."""
_HEADINGS = {"delay_median_ns": "median delay", "delay_p95_ns": "p95 delay", "delay_max_ns": "max delay"}


@click.command("idle")
@click.argument("result", metavar="RESULT", type=click.Path(path_type=Path))
@click.option("--by", type=Choice(list(_BY)), default="cause", show_default=True, help="Group by this.")
@device_option
@step_option
@output_options()
def command(result: Path, by: str, device: str | None, step: int | None, as_csv: bool) -> Output:
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

    return Output(_parts(whole, tables, by, ingested.trace), data, csv=tables[_BY[by]], notes=notes)


def _parts(whole: Bound, tables: dict[str, pd.DataFrame], by: str, trace: Trace) -> Iterator[Part]:
    yield from headline(trace)
    yield Text(f"{bound_text(whole)} of the wall time", "  ")
    yield _table(tables[_BY[by]])
    if by == "cause":
        yield ""
        yield from _launches(tables["launches"])


def _tables(events: pd.DataFrame, device: str | None, step: int | None) -> tuple[Bound, dict[str, pd.DataFrame]] | None:
    """Return what the chosen work is bound by, and all tables; None if there is no such work."""
    from benchmarker.traces.idle import idle_gaps, on_device
    from benchmarker.traces.intervals import Covered
    from benchmarker.traces.launches import launch_statistics, streams
    from benchmarker.traces.wall_time import bound, bounds, states

    rows, of_step = on_device(events), events
    if not len(rows):
        return None
    gaps = idle_gaps(events)
    if device is not None:
        rows, gaps = rows[rows["device"] == device], gaps[gaps["device"] == device]
    if step is not None:
        rows, gaps, of_step = (each[each["step"] == step] for each in (rows, gaps, events))
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


def _table(table: pd.DataFrame) -> Table:
    """Return a table without columns that are empty or zero throughout."""
    empty = [name for name in table if name not in ("queue_median", "step") and not table[name].astype(bool).any()]
    shown = table.drop(columns=empty).astype(object)
    rows = [[cell(_LIKE.get(name, name), value) for name, value in row.items()] for row in shown.to_dict("records")]
    return Table.of([_heading(name) for name in shown], rows, drop=_DROPPED, cut=(*NAMES, "call"))


def _heading(name: str) -> str:
    return _HEADINGS.get(name, name.removesuffix("_ns").replace("_", " "))


def _launches(launches: pd.DataFrame) -> Iterator[Part]:
    if not len(launches):
        yield Text("no launch of this work is in the trace, so there are no launch delays and no queue")
        return
    yield _table(launches)
    if early := int(launches["early"].sum()):
        yield Text(
            f"{count(early, 'launch call')} began after the launched work: the clocks of host and device disagree, "
            "so causes and delays may be wrong",
            "  ",
        )
