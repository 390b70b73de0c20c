"""The group `bundle`: packs a run for hand-in, and verifies or unpacks it."""

import re
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from benchmarker.api.errors import UserError
from benchmarker.bundles.manifest import Manifest, Remark
from benchmarker.bundles.pack import NO_PROFILES, Bundled, bundle, still
from benchmarker.bundles.redact import REDACTED, Pseudonyms
from benchmarker.bundles.signature import path_of
from benchmarker.bundles.unpack import unbundle
from benchmarker.cli.display.output import Output, output_options
from benchmarker.cli.options.types import File, Folder, Integer, all_of, output_option
from benchmarker.formatting import clean, count, part, si
from benchmarker.tables.table import Table


@click.command("create")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=click.Path(path_type=Path))
@output_option("Name of the zip file, if there is one.  [default: RUN.zip in the current folder]")
@click.option("--profiles/--no-profiles", default=True, help="Include event tables and profiler files.")
@click.option("--with-source", "source", is_flag=True, help="Include the files of yours that were measured.")
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
def create_command(
    runs: tuple[Path, ...], output: Path | None, profiles: bool, source: bool, redact: bool, sign: Path | None
) -> Output:
    """Pack the folder of each run into a zip file, with a manifest of checksums and a description of the machines.

    The command prints the SHA-256 of each zip file. Send it to the recipient separately from the zip file. If a record
    is damaged or belongs to another run, its run is not packed and the exit status is 1. With --redact, a machine has
    the same pseudonym in all runs that are packed by one command, and another one in every other command.
    """
    if output and len(runs) > 1:
        raise UserError(f"-o names one file, and there are {len(runs)} runs; leave it out")
    names = Pseudonyms() if redact else None
    with ExitStack() as all_still:
        for run in runs:  # nothing is written unless all can be read
            all_still.enter_context(still(run))
        made = [
            _created(run, bundle(run, output, profiles=profiles, source=source, redact=names, key=sign)) for run in runs
        ]
    facts, data = [fact for of, _ in made for fact in of], [each for _, each in made]
    return Output([Table.facts(facts)], data if len(runs) > 1 else data[0], int(not all(of for of, _ in made)))


def _created(run: Path, bundled: Bundled | tuple[Remark, ...]) -> tuple[list[list[str]], dict[str, Any]]:
    """Return the rows and the data on a bundle; no row and the faults if none was written."""
    if not isinstance(bundled, Bundled):
        print_faults(bundled)
        click.echo(clean(f"benchmarker: {run} is not packed: fix these files, or move them away"), err=True)
        return [], {"faults": bundled}
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
    return [*summary(bundled.manifest), ["bundle", file], ["sha256", bundled.sha256], *signed], data


verifying_options = all_of(
    click.argument("file", metavar="FILE", type=File()),
    click.option("--sha256", metavar="HEX", help="Expected SHA-256 of FILE, as printed by `bundle create`."),
    click.option(
        "--signed-by",
        metavar="KEY",
        type=File(),
        help="Public SSH key, or file of allowed signers; FILE.sig must be a signature by one of them.",
    ),
    click.option(
        "--max-size",
        metavar="GIB",
        type=Integer(min=1),
        help="Maximum unpacked size.  [default: 10, or 1 if 10 GiB is over 100 times the size of FILE]",
    ),
    output_options(),
)
"""The bundle, and the options that define how it is verified."""


@click.command("unpack")
@click.option(
    "--to",
    metavar="FOLDER",
    type=Folder(),
    default=Path("results"),
    help="Folder below which the run's folder is created.",
)
@verifying_options
def unpack_command(to: Path, **options: Any) -> Output:
    """Verify every byte and every record of a bundle, then unpack its run.

    If any check fails, all faults are listed, nothing is unpacked and the exit status is 1. Checksums show that nothing
    changed in transit; they do not show that the measurements are genuine.
    """
    return receive(to, **options)


def receive(to: Path | None, file: Path, sha256: str | None, signed_by: Path | None, max_size: int | None) -> Output:
    """Verify a bundle, unpack it below `to` if that is given, and return the outcome."""
    if sha256 is not None and not re.fullmatch("[0-9a-fA-F]{64}", sha256):
        raise UserError("--sha256 must be 64 hexadecimal digits, as printed by `bundle create`")
    max_bytes = max_size and max_size * 2**30
    done = unbundle(file, to, sha256=sha256, signers=signed_by, max_bytes=max_bytes)
    if signed_by is None and path_of(file).exists():
        click.echo(f"benchmarker: {clean(str(path_of(file)))} is not verified; name its key with --signed-by", err=True)
    warn(done.manifest)
    print_faults(done.faults)
    folder = str(done.folder) if done.folder else None
    data = {"manifest": done.manifest, "faults": done.faults, "folder": folder, "signer": done.signer}
    verdict = f"NOT VERIFIED: {count(len(done.faults), 'fault')}" if done.faults else "verified"
    verdict += "" if done.folder or to is None else ", not unpacked"
    signed = [["signed by", done.signer]] if done.signer else []
    where = [["unpacked to", folder]] if folder else []
    facts = Table.facts([*summary(done.manifest), ["bundle", verdict], *signed, *where])
    return Output([facts], data, 1 if done.faults else 0)


@click.command("verify")
@verifying_options
def verify_command(**options: Any) -> Output:
    """Verify every byte and every record of a bundle; unpack nothing.

    If any check fails, all faults are listed and the exit status is 1. Checksums show that nothing changed in transit;
    they do not show that the measurements are genuine.
    """
    return receive(None, **options)


_BY_OPTION = {
    NO_PROFILES: "event tables and profiler files (--no-profiles)",
    REDACTED: "logs, event tables, profiler files and others (--redact)",
}
"""Why files are left out on request, and how they are reported together."""


def summary(manifest: Manifest) -> list[list[str]]:
    """Return the content of a manifest as rows of a table."""
    size = sum(packed.size_bytes for packed in manifest.files)
    return [
        ["run", manifest.run_id],
        *([["suite", str(manifest.suite)]] if manifest.suite else []),
        ["trials", str(manifest.trials)],
        ["files", f"{len(manifest.files)}, {si(size, 'B')}"],
        *([["redacted", str(manifest.redacted)]] if manifest.redacted else []),
    ]


def warn(manifest: Manifest) -> None:
    """Report on standard error what is missing from a bundle."""
    trials = manifest.trials
    if absent := trials.planned - trials.recorded:
        click.echo(
            f"benchmarker: UNFINISHED run: {part(absent, trials.planned, 'trial', 'has', 'have')} no record (a run "
            "that may stop early, such as one of `ab`, can be complete)",
            err=True,
        )
    for remark in manifest.left_out:
        if remark.reason not in _BY_OPTION:
            click.echo(f"benchmarker: not packed: {clean(str(remark))}", err=True)
    for reason, what in _BY_OPTION.items():
        if count := sum(remark.reason == reason for remark in manifest.left_out):
            click.echo(f"benchmarker: not packed: {count} {what}", err=True)


def print_faults(faults: Iterable[Remark]) -> None:
    """Report the faults on standard error."""
    for fault in faults:
        click.echo(f"benchmarker: {clean(str(fault))}", err=True)
