"""`benchmarker validate`."""

from pathlib import Path

import click
from msgspec import Struct
from msgspec.structs import astuple

from benchmarker.cli.display.output import Output, output_options, print_json
from benchmarker.cli.options.results import results_argument
from benchmarker.files.atomic import Fault
from benchmarker.formatting import clean, count
from benchmarker.procurement.completeness import REMEDY, completeness_of
from benchmarker.procurement.evidence import Kind, of_runs
from benchmarker.records import store
from benchmarker.records.record import schema


class Note(Struct, frozen=True):
    """What was found in several trials of a run, or is no fault of a file: as a finding of `suite check`."""

    run: str
    kind: Kind
    of: str
    what: str


def _print_schema(context: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked and not context.resilient_parsing:
        print_json(schema())
        context.exit()


@click.command("validate")
@results_argument
@click.option(
    "--schema",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_schema,
    help="Print the JSON Schema of records, and exit.",
)
@output_options(tables=False)
def command(results: tuple[Path, ...]) -> Output:
    """Validate records and plans; list each faulty file with the location and the reason.

    RESULT is a record, the folder of a run, a folder of runs, or an archive. Records must fit the JSON Schema and the
    plan of their run. The values of a record must also be consistent: the times of its blocks with those of its stages,
    its cost with the formulas of its problem, the trials of a run with each other, and so on (docs/records.md has the
    list). The exit status is 1 if a file is faulty or a run is doubtful; planned trials without a record are counted,
    but are not faults.
    """
    records, unread = store.read(list(results))
    planned = completeness_of(results, records)
    runs = of_runs(records)
    reasons: dict[Path, list[str]] = {}
    for run, evidence in runs.items():
        for objection in evidence.objections():
            if objection.kind == "invalid":
                reasons.setdefault(Path(run, f"{objection.trial_id}.json"), []).append(objection.text)
    faults = [*unread, *planned.faults, *(Fault(path, "; ".join(texts)) for path, texts in reasons.items())]
    notes = [
        Note(run, *astuple(finding))
        for run, evidence in runs.items()
        for finding in evidence.findings()
        if finding.kind != "invalid" or not finding.of.endswith(".json")
    ]
    doubtful = len({note.run for note in notes if note.kind == "doubtful"})
    valid = len(records) - len(reasons)
    missing = sum(lacking.trials for lacking in planned.missing)
    data = {
        "valid": valid,
        "missing": missing,
        "faults": [{"path": str(fault.path), "reason": fault.reason} for fault in faults],
        "notes": notes,
    }
    lines = [clean(str(fault)) for fault in faults]
    lines += [clean(f"{note.run}: {note.kind}: {note.of}: {note.what}") for note in notes]
    lines.append(f"{valid} valid, {len(faults)} faulty" + (f", {count(doubtful, 'doubtful run')}" if doubtful else ""))
    if missing:
        lines.append(f"{count(missing, 'planned trial has', 'planned trials have')} no record; {REMEDY}")
    return Output(lines, data, 1 if faults or doubtful else 0)
