"""`benchmarker show`."""

from __future__ import annotations

from pathlib import Path

import click

from benchmarker.api.errors import UserError
from benchmarker.cli.display.output import json_option, print_json_list, wide_option
from benchmarker.cli.display.records import as_plain, print_cases, print_record, print_trials
from benchmarker.cli.options.results import pool_option, print_mixed
from benchmarker.formatting import clean
from benchmarker.hooks.cases import Cases
from benchmarker.hooks.metrics import load_metrics
from benchmarker.records import sides, store
from benchmarker.records.load import is_load


@click.command("show")
@click.argument("results", metavar="RESULT...", nargs=-1, required=True, type=click.Path(path_type=Path))
@pool_option
@click.option("--trials", is_flag=True, help="Show a line for each trial instead of one for each case.")
@click.option("--metric", metavar="NAME[,NAME...]", help="Metrics to show. [default: the main ones that have a value]")
@wide_option
@json_option
@store.uncollected()
def command(results: tuple[Path, ...], pool: bool, trials: bool, metric: str | None, wide: bool, as_json: bool) -> int:
    """Show a single record in full, a line for each case of several records, or the load that `serve-load` stored.

    The line has the medians over the successful trials, how far the trials spread (the 95% interval of the median if
    every case has six trials or more, otherwise the range), and how many trials there are, failed or were disturbed.

    RESULT is a record, the folder of a run, or a folder of runs. Of several folders, each is a side, with lines of its
    own: `show results/*` has a line for each case of each run, `show results` one for each case of all runs together.
    The exit status is 1 if a file cannot be read; for a load, which is shown alone, it is that of `serve-load`.
    """
    if len(results) == 1 and is_load(results[0]):
        if trials or metric:
            raise UserError(
                f"{results[0]} is a load, which has no trials and no metrics; leave --trials and --metric out"
            )
        from benchmarker.cli.display.loads import finish
        from benchmarker.records import load

        return finish(load.read(results[0]), results[0], as_json=as_json)
    found, faults = sides.read(results, pool=pool)
    derive = load_metrics(results)
    chosen = [each.strip() for each in metric.split(",") if each.strip()] if metric else []
    for fault in faults:
        click.echo(f"benchmarker: cannot read {clean(str(fault))}", err=True)
    records = [record for side in found for record in side.records]
    if as_json:
        print_json_list(as_plain(record, derive(record), side.name) for side in found for record in side.records)
    elif len(records) == 1 and not (trials or chosen):
        print_record(records[0], derive(records[0]))
    elif records:
        cases = Cases.of_sides(found)
        (print_trials if trials else print_cases)(cases, derive, chosen, wide=wide)
        if not trials:
            print_mixed(cases)
    return 1 if faults else 0
