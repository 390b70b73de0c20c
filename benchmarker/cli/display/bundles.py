"""Bundles as text: what was packed, what is missing, what is wrong."""

from __future__ import annotations

from collections.abc import Iterable

import click

from benchmarker.bundles.manifest import Manifest, Remark
from benchmarker.bundles.pack import NO_PROFILES
from benchmarker.bundles.redact import REDACTED
from benchmarker.formatting import clean, si

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
    if trials.recorded < trials.planned:
        click.echo(
            f"benchmarker: UNFINISHED run: {trials.planned - trials.recorded} of {trials.planned} trials have no record"
            " (a run that may stop early, such as one of `ab`, can be complete)",
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
