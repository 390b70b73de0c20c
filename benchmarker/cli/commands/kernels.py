"""`benchmarker kernels`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from benchmarker.cli.display.output import csv_option, json_option
from benchmarker.cli.display.profiles import from_result, phase_option, print_statistics, sort_options, warn
from benchmarker.comparing.profiled_parts import OUTSIDE

_BY = {
    "name": ["name", "category"],
    "category": ["category"],
    "scope": ["leaf", "phase"],
    "op": ["op"],
    "phase": ["phase"],
    "device": ["device", "track"],
}


@click.command("kernels", short_help="Show the kernels of a profile.")
@click.argument("result", metavar="RESULT", type=click.Path(path_type=Path))
@click.option(
    "--by", type=click.Choice(list(_BY)), default="name", show_default=True, help="What the lines have in common."
)
@click.option("--scope", help="Only what is counted to this scope.")
@phase_option
@click.option("--rule", is_flag=True, help="The rule that gave each its category, too.")
@sort_options
@json_option
@csv_option
def command(
    result: Path,
    by: str,
    scope: str | None,
    phase: str | None,
    rule: bool,
    as_json: bool,
    as_csv: bool,
    **shown: Any,
) -> None:
    """Show what ran on the device in a profile: how often, how long, for what share of the busy time.

    RESULT is a record that was profiled, an event table, or a profiler's own file. On a CPU the kernels are the
    instructions or ops themselves. SHARE is of the busy time of the whole profile. TOTAL is with what a kernel
    encloses, SELF without; where they do not differ from BUSY they are not shown. Mean, median, percentiles and
    extremes are of SELF. FLOPs are divided by the time of the whole line, also where only some of its rows say theirs.
    """
    from benchmarker.traces.statistics import describe, work

    ingested = from_result(result)
    rows = work(ingested.events)
    if scope is not None:
        rows = rows[rows["leaf"] == ("" if scope == OUTSIDE else scope)]
    if phase is not None:
        rows = rows[rows["phase"] == phase]
    table = describe(rows, [*_BY[by], *(["rule"] if rule else [])])
    warn([ingested.trace], [str(result)], aside=as_json or as_csv)
    table["share"] = table["busy_ns"] / max(1, ingested.trace.busy_ns)
    table = table.rename(columns={"leaf": "scope"})
    print_statistics(table, ingested.trace, as_json=as_json, as_csv=as_csv, **shown)
