"""`benchmarker validate`."""

from __future__ import annotations

from pathlib import Path

import click

from benchmarker.cli.display.output import json_option, print_json
from benchmarker.files.atomic import Fault
from benchmarker.formatting import clean
from benchmarker.records import store
from benchmarker.records.consistency import inconsistent


@click.command("validate", short_help="Validate records against the JSON Schema, and check that they are consistent.")
@click.argument("results", metavar="RESULT...", nargs=-1, required=True, type=click.Path(path_type=Path))
@json_option
def command(results: tuple[Path, ...], as_json: bool) -> int:
    """Validate records against the JSON Schema; list each faulty file with the location and the reason.

    What a record says must also be consistent: the times of its blocks with those of its stages, its energy with its
    steps, and so on (docs/records.md has the list).

    RESULT is a record, the folder of a run, or a folder of runs. The exit status is 1 if a file is faulty.
    """
    records, faults = store.read(list(results))
    found = inconsistent(records)
    faults += [Fault(Path(run, f"{trial}.json"), "; ".join(reasons)) for (run, trial), reasons in found.items()]
    if as_json:
        print_json(
            {
                "valid": len(records) - len(found),
                "faults": [{"path": str(fault.path), "reason": fault.reason} for fault in faults],
            }
        )
    else:
        for fault in faults:
            click.echo(clean(str(fault)))
        click.echo(f"{len(records) - len(found)} valid, {len(faults)} faulty")
    return 1 if faults else 0
