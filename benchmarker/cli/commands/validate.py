"""`benchmarker validate`."""

from __future__ import annotations

from pathlib import Path

import click

from benchmarker.cli.display.output import json_option, print_json
from benchmarker.files.atomic import Fault
from benchmarker.formatting import clean, count
from benchmarker.procurement.completeness import asked
from benchmarker.records import store
from benchmarker.records.consistency import inconsistent


@click.command("validate")
@click.argument("results", metavar="RESULT...", nargs=-1, required=True, type=click.Path(path_type=Path))
@json_option
def command(results: tuple[Path, ...], as_json: bool) -> int:
    """Validate records and plans; list each faulty file with the location and the reason.

    RESULT is a record, the folder of a run, or a folder of runs. Records must fit the JSON Schema and the plan of their
    run. The values of a record must also be consistent: the times of its blocks with those of its stages, its energy
    with its steps, and so on (docs/records.md has the list). The exit status is 1 if a file is faulty; planned trials
    without a record are counted, but are not faults.
    """
    records, unread = store.read(list(results))
    planned = asked(results, records)
    found = inconsistent(records)
    faults = [
        *unread,
        *planned.faults,
        *(Fault(Path(run, f"{trial}.json"), "; ".join(reasons)) for (run, trial), reasons in found.items()),
    ]
    valid = len(records) - len(found)
    missing = sum(each.trials for each in planned.unrun)
    if as_json:
        print_json(
            {
                "valid": valid,
                "missing": missing,
                "faults": [{"path": str(fault.path), "reason": fault.reason} for fault in faults],
            }
        )
    else:
        for fault in faults:
            click.echo(clean(str(fault)))
        click.echo(f"{valid} valid, {len(faults)} faulty")
        if missing:
            click.echo(
                f"{count(missing, 'planned trial has', 'planned trials have')} no record; "
                "the command of the run continues with --resume"
            )
    return 1 if faults else 0
