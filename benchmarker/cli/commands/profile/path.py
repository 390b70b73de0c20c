"""`benchmarker profile path`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchmarker.cli.display.output import Output, Part, Text, output_options
from benchmarker.cli.display.profile_filters import step_option
from benchmarker.cli.display.profiles import NAMES, cell, from_result, headline, notes_on, plain
from benchmarker.formatting import count, si
from benchmarker.tables.table import Table

if TYPE_CHECKING:
    import pandas as pd

    from benchmarker.records.profile import Trace

NO_DEVICE = "no accelerator executed anything in this profile, and CPU traces contain no dependencies between ops"
_DROPPED = ("scope", "op", "longest", "category", "count")
"""Columns that a narrow terminal does not show, the least important first."""


@click.command("path")
@click.argument("result", metavar="RESULT", type=click.Path(path_type=Path))
@step_option
@output_options(top=True)
def command(result: Path, step: int | None, top: int) -> Output:
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
        reason = "nothing in the profile matches" if has_device else NO_DEVICE
        nothing = dict.fromkeys(("path_ns", "steps", "kinds", "items", "segments"))
        return Output([reason], {"reason": reason, **nothing}, notes=notes)
    steps = path.groupby("step")["time_ns"].sum()
    kinds = summed(path, ["kind", "category"]).drop(columns=["op", "scope"])
    items = summed(path, ["kind", "name", "category"])
    chosen = items.head(top) if top else items

    def data() -> dict[str, Any]:
        of_steps = [{"step": None if number < 0 else number, "path_ns": ns} for number, ns in steps.to_dict().items()]
        tables = {"kinds": plain(kinds), "items": plain(chosen), "segments": plain(path)}
        return {"reason": None, "path_ns": int(steps.sum()), "steps": of_steps, **tables}

    return Output(_parts(ingested.trace, steps, kinds, items, chosen), data, csv=chosen, notes=notes)


def _parts(
    trace: Trace, steps: pd.Series, kinds: pd.DataFrame, items: pd.DataFrame, chosen: pd.DataFrame
) -> Iterator[Part]:
    yield from headline(trace)
    of = "" if steps.index[0] < 0 else f" of {count(len(steps), 'step')}"
    yield Text(f"critical path{of}: {si(int(steps.sum()) / 1e9, 's')}", "  ")
    yield _table(kinds)
    yield ""
    yield _table(chosen)
    if len(chosen) < len(items):
        rest = items.iloc[len(chosen) :]["share"].sum()
        yield f"and {len(items) - len(chosen)} more, {rest:.1%} of the path; --top=0 shows all"


def _table(table: pd.DataFrame) -> Table:
    """Return a table without columns that are empty throughout."""
    shown = table.drop(columns=[name for name in table if not table[name].astype(bool).any()]).astype(object)
    rows = [[_cell(name, value) for name, value in row.items()] for row in shown.to_dict("records")]
    return Table.of([name.removesuffix("_ns") for name in shown], rows, drop=_DROPPED, cut=NAMES)


def _cell(name: str, value: object) -> str:
    return {"name": "(outside any op)"}.get(name, "-") if value == "" else cell(name, value)
