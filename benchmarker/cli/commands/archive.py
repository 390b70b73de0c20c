"""The group `archive`: adds runs to an archive."""

from pathlib import Path

import click

from benchmarker.cli.display.output import Output, output_options
from benchmarker.cli.display.progress import working
from benchmarker.cli.options.results import results_argument, tell_unread
from benchmarker.cli.options.types import Folder
from benchmarker.formatting import clean


@click.command("add")
@results_argument
@click.option("--to", metavar="ARCHIVE", type=Folder(), required=True, help="The archive; it is created if needed.")
@output_options(tables=False)
def command(results: tuple[Path, ...], to: Path) -> Output:
    """Add records, and the plans and ceilings of their runs, to an archive.

    RESULT is a record, the folder of a run, a folder of runs, a bundle, which is verified first, or another archive.
    The records stay whole; logs, event tables and time series are not added. A trial that is in the archive is not
    added again, so a command that was interrupted can be repeated, and several may add at once.

    The exit status is 1 if a file cannot be read, or if the archive has another record of a trial.
    """
    with working(f"adding to {to}"):
        from benchmarker.library.archiving import add  # Arrow takes longer to import than everything else

        added = add(results, to)
    tell_unread(added.faults)
    data = {
        "trials": added.trials,
        "runs": len(added.runs),
        "present": added.present,
        "faults": [{"path": str(fault.path), "reason": fault.reason} for fault in added.faults],
    }
    return Output([f"{added} ({clean(str(to))})"], data, 1 if added.faults else 0)
