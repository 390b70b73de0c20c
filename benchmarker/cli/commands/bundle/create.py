"""`benchmarker bundle create`."""

from __future__ import annotations

from pathlib import Path

import click

from benchmarker.bundles.pack import Bundled, bundle
from benchmarker.cli.display.bundles import print_faults, summary, warn
from benchmarker.cli.display.output import Output, output_options
from benchmarker.formatting import si
from benchmarker.tables.table import Table


@click.command("create")
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Name of the zip file.  [default: RUN.zip in the current folder]",
)
@click.option(
    "--profiles/--no-profiles", default=True, show_default=True, help="Include event tables and profiler files."
)
@click.option(
    "--redact",
    is_flag=True,
    help="Replace host names, UUIDs and paths; leave out logs and profiles, which may contain some.",
)
@click.option(
    "--sign",
    metavar="KEY",
    type=click.Path(path_type=Path),
    help="Sign the zip file with this SSH key; the signature is FILE.sig.",
)
@output_options()
def command(run: Path, output: Path | None, profiles: bool, redact: bool, sign: Path | None) -> Output:
    """Pack the folder of a run into a zip file, with a manifest of checksums and a description of the machines.

    The command prints the SHA-256 of the zip file. Send it to the recipient separately from the zip file. If a record
    is damaged or belongs to another run, nothing is written and the exit status is 1.
    """
    bundled = bundle(run, output, profiles=profiles, redact=redact, key=sign)
    if not isinstance(bundled, Bundled):
        print_faults(bundled)
        click.echo("benchmarker: nothing was written: fix these files, or move them away", err=True)
        return Output(data={"faults": bundled}, status=1)
    warn(bundled.manifest)
    data = {
        "path": str(bundled.path),
        "size_bytes": bundled.size_bytes,
        "sha256": bundled.sha256,
        "signature": str(bundled.signature) if bundled.signature else None,
        "manifest": bundled.manifest,
    }
    file = f"{bundled.path}, {si(bundled.size_bytes, 'B')}"
    signed = [["signature", str(bundled.signature)]] if bundled.signature else []
    facts = [*summary(bundled.manifest), ["bundle", file], ["sha256", bundled.sha256], *signed]
    return Output([Table.facts(facts)], data)
