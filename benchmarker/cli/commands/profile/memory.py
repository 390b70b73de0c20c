"""`benchmarker profile memory`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchmarker.cli.display.output import Output, Part, output_options
from benchmarker.cli.display.profile_filters import device_option
from benchmarker.cli.display.profiles import NAMES, cell, from_result, notes_on, plain
from benchmarker.cli.options.types import Choice
from benchmarker.formatting import si
from benchmarker.tables.table import Table

if TYPE_CHECKING:
    import pandas as pd

NO_MEMORY = (
    "no memory events in this profile; PyTorch records them with torch.profiler.profile(profile_memory=True), "
    "and those of JAX are not read"
)
_DROPPED = ("phase", "allocations", "before", "scope", "step", "op")
"""Columns that a narrow terminal does not show, the least important first."""
_BYTES = ("peak_allocated", "peak_reserved", "before", "bytes")


@click.command("memory")
@click.argument("result", metavar="RESULT", type=click.Path(path_type=Path))
@click.option(
    "--by",
    type=Choice(["scope", "op", "category", "phase"]),
    default="scope",
    show_default=True,
    help="Group what was allocated at the peak by this.",
)
@device_option
@output_options(top=True)
def command(result: Path, by: str, device: str | None, top: int) -> Output:
    """Show the peak memory of each device in a profile, when it was reached, and what was allocated then.

    AT is the time of the peak since the first memory event; OP, SCOPE and STEP are those of the allocation that reached
    it. BEFORE is what was allocated before that event, RESERVED the device memory that the allocator holds. On a CPU,
    only allocations during the profile count. The second table adds up to the peak. JSON has every allocation and free
    over time.

    RESULT is a record of a profiled trial, an event table, or a profiler's trace file.
    """
    from benchmarker.traces.memory import at_peak, peaks, timeline

    ingested = from_result(result)
    notes = notes_on([ingested.trace], [str(result)])
    whole = timeline(ingested.events)
    memory = whole if device is None else whole[whole["device"] == device].reset_index(drop=True)
    if not len(memory):
        reason = "nothing in the profile matches" if len(whole) else NO_MEMORY
        return Output([reason], {"reason": reason, **dict.fromkeys(("peaks", "at_peak", "timeline"))}, notes=notes)
    held = at_peak(memory, by)
    chosen = held.head(top) if top else held

    def data() -> dict[str, Any]:
        tables = {"peaks": peaks(memory), "at_peak": chosen, "timeline": memory}
        return {"reason": None, **{name: plain(table.astype(object)) for name, table in tables.items()}}

    return Output(_parts(peaks(memory), held, chosen), data, csv=chosen, notes=notes)


def _parts(peaks: pd.DataFrame, held: pd.DataFrame, chosen: pd.DataFrame) -> Iterator[Part]:
    yield _table(peaks)
    yield ""
    yield _table(chosen)
    if len(chosen) < len(held):
        rest = si(float(held.iloc[len(chosen) :]["bytes"].sum()), "B")
        yield f"and {len(held) - len(chosen)} more, {rest}; --top=0 shows all"


def _table(table: pd.DataFrame) -> Table:
    rows = [[_cell(name, value) for name, value in row.items()] for row in table.astype(object).to_dict("records")]
    headings = [name.removesuffix("_ns").replace("_", " ") for name in table]
    return Table.of(headings, rows, drop=_DROPPED, cut=NAMES)


def _cell(name: str, value: object) -> str:
    return si(float(str(value)), "B") if name in _BYTES else cell(name, value)
