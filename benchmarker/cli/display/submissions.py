"""Checked submissions as text: what was found in each run, one line each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from benchmarker.cli.display.output import print_table
from benchmarker.formatting import clean, count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarker.procurement.submission import Submission


def print_submissions(checked: Sequence[Submission]) -> None:
    """Print what was found in each run, then whether it is as its suite requires."""
    for each in checked:
        if each.findings:
            print_table(None, [[finding.kind, finding.of, finding.what] for finding in each.findings])
        verdict = count(len(each.findings), "finding") if each.findings else "complete, nothing is changed or disturbed"
        click.echo(clean(f"{each.path}: suite {each.suite or 'unknown'}: {verdict}"))
