"""`benchmarker bundle`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from benchmarker.bundles.bundle import NO_PROFILES, Bundled, bundle
from benchmarker.bundles.manifest import Manifest, Remark
from benchmarker.cli.output import clean, json_option, print_json, print_table, si


@click.command("bundle", short_help="Pack a run with checksums, to hand it in.")
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write it there.  [default: RUN.zip, here]",
)
@click.option(
    "--profiles/--no-profiles", default=True, show_default=True, help="Pack event tables and profiler files, too."
)
@json_option
def command(run: Path, output: Path | None, profiles: bool, as_json: bool) -> int:
    """Pack the folder of a run into a zip, with a manifest of checksums and what it ran on.

    Hand over the SHA-256 that is printed by another way than the zip. The exit status is 1, and nothing is written,
    where a record is damaged or of another run.
    """
    bundled = bundle(run, output, profiles=profiles)
    if not isinstance(bundled, Bundled):
        print_faults(bundled)
        click.echo("benchmarker: nothing was written: move these files away, or mend them", err=True)
        if as_json:
            print_json({"faults": bundled})
        return 1
    warn(bundled.manifest)
    if as_json:
        print_json(
            {
                "path": str(bundled.path),
                "size_bytes": bundled.size_bytes,
                "sha256": bundled.sha256,
                "manifest": bundled.manifest,
            }
        )
        return 0
    place = f"{bundled.path}, {si(bundled.size_bytes, 'B')}"
    print_table(None, [*summary(bundled.manifest), ["bundle", place], ["sha256", bundled.sha256]])
    return 0


def summary(manifest: Manifest) -> list[list[str]]:
    """What a manifest says, in rows of a table."""
    size = sum(packed.size_bytes for packed in manifest.files)
    return [
        ["run", manifest.run_id],
        ["trials", str(manifest.trials)],
        ["files", f"{len(manifest.files)}, {si(size, 'B')}"],
    ]


def warn(manifest: Manifest) -> None:
    """Say on standard error what a bundle lacks."""
    trials = manifest.trials
    if trials.recorded < trials.planned:
        click.echo(
            f"benchmarker: UNFINISHED run: {trials.planned - trials.recorded} of {trials.planned} trials have no record"
            " (a run that may stop early, as of `ab`, can be complete)",
            err=True,
        )
    for remark in manifest.left_out:
        if remark.reason != NO_PROFILES:
            click.echo(f"benchmarker: not packed: {clean(str(remark))}", err=True)
    if profiles := sum(remark.reason == NO_PROFILES for remark in manifest.left_out):
        click.echo(f"benchmarker: not packed: {profiles} event tables and profiler files (--no-profiles)", err=True)


def print_faults(faults: Iterable[Remark]) -> None:
    """Name on standard error what does not hold."""
    for fault in faults:
        click.echo(f"benchmarker: {clean(str(fault))}", err=True)
