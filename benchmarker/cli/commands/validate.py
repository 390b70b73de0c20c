"""`benchmarker validate`."""

from __future__ import annotations

from pathlib import Path

import click

from benchmarker.cli.display.output import json_option, print_json
from benchmarker.formatting import clean
from benchmarker.records import store


@click.command("validate")
@click.argument("results", metavar="RESULT...", nargs=-1, required=True, type=click.Path(path_type=Path))
@json_option
def command(results: tuple[Path, ...], as_json: bool) -> int:
    """Validate records against the JSON Schema; list each faulty file with the location and the reason.

    RESULT is a record, the folder of a run, or a folder of runs. The exit status is 1 if a file is faulty.
    """
    records, faults = store.read(list(results))
    if as_json:
        print_json(
            {
                "valid": len(records),
                "faults": [{"path": str(fault.path), "reason": fault.reason} for fault in faults],
            }
        )
    else:
        for fault in faults:
            click.echo(clean(str(fault)))
        click.echo(f"{len(records)} valid, {len(faults)} faulty")
    return 1 if faults else 0
