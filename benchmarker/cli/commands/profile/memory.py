"""`benchmarker profile memory`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchmarker.cli.display.output import csv_option, json_option, print_json, print_table, wide_option
from benchmarker.cli.display.profile_filters import device_option
from benchmarker.cli.display.profiles import NAMES, cell, from_result, noting, plain, print_frame_csv, top_option
from benchmarker.cli.options.types import Choice
from benchmarker.formatting import si

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
@top_option
@wide_option
@json_option
@csv_option
def command(result: Path, by: str, device: str | None, top: int, wide: bool, as_json: bool, as_csv: bool) -> None:
    """Show the peak memory of each device in a profile, when it was reached, and what was allocated then.

    AT is the time of the peak since the first memory event; OP, SCOPE and STEP are those of the allocation that reached
    it. BEFORE is what was allocated before that event, RESERVED the device memory that the allocator holds. On a CPU,
    only allocations during the profile count. The second table adds up to the peak. JSON has every allocation and free
    over time.

    RESULT is a record of a profiled trial, an event table, or a profiler's trace file.
    """
    from benchmarker.traces.memory import at_peak, peaks, timeline

    ingested = from_result(result)
    with noting([ingested.trace], [str(result)], aside=as_json or as_csv):
        whole = timeline(ingested.events)
        memory = whole if device is None else whole[whole["device"] == device].reset_index(drop=True)
        if not len(memory):
            reason = "nothing in the profile matches" if len(whole) else NO_MEMORY
            if as_json:
                print_json({"reason": reason, **dict.fromkeys(("peaks", "at_peak", "timeline"))})
            else:
                click.echo(reason, err=as_csv)
            return
        held = at_peak(memory, by)
        chosen = held.head(top) if top else held
        if as_json:
            tables = {"peaks": peaks(memory), "at_peak": chosen, "timeline": memory}
            print_json({"reason": None, **{name: plain(table.astype(object)) for name, table in tables.items()}})
        elif as_csv:
            print_frame_csv(chosen)
        else:
            _print(peaks(memory), wide=wide)
            click.echo()
            _print(chosen, wide=wide)
            if len(chosen) < len(held):
                rest = si(float(held.iloc[len(chosen) :]["bytes"].sum()), "B")
                click.echo(f"and {len(held) - len(chosen)} more, {rest}; --top=0 shows all")


def _print(table: pd.DataFrame, *, wide: bool) -> None:
    rows = [[_cell(name, value) for name, value in row.items()] for row in table.astype(object).to_dict("records")]
    headings = [name.removesuffix("_ns").replace("_", " ") for name in table]
    print_table(headings, rows, drop=_DROPPED, cut=NAMES, wide=wide)


def _cell(name: str, value: object) -> str:
    return si(float(str(value)), "B") if name in _BYTES else cell(name, value)
