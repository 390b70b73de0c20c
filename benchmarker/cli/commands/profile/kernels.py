"""`benchmarker profile kernels`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchmarker.cli.display.output import csv_option, json_option
from benchmarker.cli.display.profile_difference import show_difference
from benchmarker.cli.display.profile_filters import filter_options
from benchmarker.cli.display.profiles import (
    causal_option,
    from_result,
    one_or_two,
    print_statistics,
    sort_options,
    warn,
)

if TYPE_CHECKING:
    from benchmarker.cli.display.profile_filters import Filters
    from benchmarker.traces.formats.aten_cost import Causal

_BY = {
    "name": ["name", "category"],
    "shape": ["name", "shapes"],
    "launch": ["name", "launch"],
    "category": ["category"],
    "scope": ["leaf", "phase"],
    "op": ["op"],
    "phase": ["phase"],
    "device": ["device", "track"],
}


@click.command("kernels")
@click.argument("results", metavar="RESULT [RESULT]", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--by", type=click.Choice(list(_BY)), default="name", show_default=True, help="Group by this.")
@filter_options
@click.option("--rule", is_flag=True, help="Also show the rule that determined each category.")
@causal_option
@sort_options
@json_option
@csv_option
def command(
    results: tuple[Path, ...],
    by: str,
    filters: Filters,
    rule: bool,
    causal: Causal | None,
    as_json: bool,
    as_csv: bool,
    **shown: Any,
) -> None:
    """Show what ran on the device in a profile: how often, how long, and its share of the busy time.

    RESULT is a record of a profiled trial, an event table, or a profiler's trace file. On a CPU, the kernels are the
    HLO instructions or the ops themselves. With two RESULTs, the table shows what was added, is gone, or takes more or
    less time in the second, and its part of the whole difference, per step if both have steps.

    BUSY divides each moment among all that ran at it; SHARE is relative to the busy time of the whole profile. TOTAL is
    the sum of durations with nested work, and SELF without it; a column equal to BUSY is hidden. Mean, median,
    percentiles and extremes refer to SELF. Rates are FLOPs and bytes divided by the durations of the events for which
    they are known; OF TIME is the share of these in the line, if it is not all. SHAPES are the inputs of the op that
    launched the kernel. LAUNCH, with --wide, is its grid, block, registers of a thread, bytes of shared memory of a
    block, and estimated occupancy.
    """
    from benchmarker.traces.statistics import describe, work
    from benchmarker.traces.wall_time import bound_of

    columns = [*_BY[by], *(["rule"] if rule else [])]
    if one_or_two(results):
        show_difference(
            results,
            columns,
            filters,
            causal=causal,
            top=shown["top"],
            wide=shown["wide"],
            as_json=as_json,
            as_csv=as_csv,
        )
        return
    ingested = from_result(results[0], causal)
    launch = ["launch"] if by == "name" and (shown["wide"] or as_json or as_csv) else []
    table = describe(work(filters.events(ingested.events)), columns, sole=launch)
    warn([ingested.trace], [str(results[0])], aside=as_json or as_csv)
    table["share"] = table["busy_ns"] / max(1, ingested.trace.busy_ns)
    table = table.rename(columns={"leaf": "scope"})
    print_statistics(table, ingested.trace, bound_of(ingested.events), as_json=as_json, as_csv=as_csv, **shown)
