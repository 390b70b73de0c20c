"""`benchmarker show`."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from pathlib import Path

import click

from benchmarker.cli.display.output import Output, Part, output_options
from benchmarker.cli.display.records import as_plain, cases_output, record_output, trials_output
from benchmarker.cli.options.results import mixed_output, pool_option
from benchmarker.formatting import clean
from benchmarker.hooks.metrics import load_metrics
from benchmarker.records import sides, store


@click.command("show")
@click.argument("results", metavar="RESULT...", nargs=-1, required=True, type=click.Path(path_type=Path))
@pool_option
@click.option("--trials", is_flag=True, help="Show a line for each trial instead of one for each case.")
@click.option("--metric", metavar="NAME[,NAME...]", help="Metrics to show. [default: the main ones that have a value]")
@store.uncollected()
@output_options()
def command(results: tuple[Path, ...], pool: bool, trials: bool, metric: str | None, wide: bool) -> Output:
    """Show a single record in full, or a line for each case of several records.

    The line has the medians over the successful trials, how far the trials spread (the 95% interval of the median if
    every case has six trials or more, otherwise the range), and how many trials there are, failed or were disturbed.

    RESULT is a record, the folder of a run, or a folder of runs. Of several folders, each is a side, with lines of its
    own: `show results/*` has a line for each case of each run, `show results` one for each case of all runs together.
    The exit status is 1 if a file cannot be read.
    """
    found, faults = sides.read(results, pool=pool)
    derive = load_metrics(results)
    chosen = [each.strip() for each in metric.split(",") if each.strip()] if metric else []
    for fault in faults:
        click.echo(f"benchmarker: cannot read {clean(str(fault))}", err=True)
    records = [record for side in found for record in side.records]
    groups = sides.by_side(found) if records else []
    parts: Iterable[Part] = ()
    if len(records) == 1 and not (trials or chosen):
        parts = record_output(records[0], derive(records[0]))
    elif trials and records:
        parts = trials_output(groups, derive, chosen, wide=wide)
    elif records:
        parts = chain(cases_output(groups, derive, chosen, wide=wide), mixed_output(groups))
    data = (as_plain(record, derive(record), side.name) for side in found for record in side.records)
    return Output(parts, data, 1 if faults else 0)
