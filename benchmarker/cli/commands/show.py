"""`benchmarker show`."""

from __future__ import annotations

from pathlib import Path

import click

from benchmarker.cli.display.output import json_option, print_json
from benchmarker.cli.display.records import as_plain, print_record, print_records
from benchmarker.formatting import clean
from benchmarker.hooks.metrics import load_metrics
from benchmarker.records import store


@click.command("show")
@click.argument("results", metavar="RESULT...", nargs=-1, required=True, type=click.Path(path_type=Path))
@json_option
def command(results: tuple[Path, ...], as_json: bool) -> int:
    """Show a single record in full, or several records as one table.

    RESULT is a record, the folder of a run, or a folder of runs. The exit status is 1 if a file cannot be read.
    """
    records, faults = store.read(list(results))
    derive = load_metrics(results)
    for fault in faults:
        click.echo(f"benchmarker: cannot read {clean(str(fault))}", err=True)
    if as_json:
        print_json([as_plain(record, derive(record)) for record in records])
    elif len(records) == 1:
        print_record(records[0], derive(records[0]))
    elif records:
        print_records(records, derive)
    return 1 if faults else 0
