"""Checked submissions as text: what was found in each run, one line each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from benchmarker.cli.display.output import Part
from benchmarker.formatting import clean, count
from benchmarker.tables.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarker.procurement.submission import Submission


def submissions_output(checked: Sequence[Submission]) -> Iterator[Part]:
    """Yield what was found in each run, then whether it is as its suite requires."""
    for each in checked:
        if each.findings:
            yield Table.facts([[finding.kind, finding.of, finding.what] for finding in each.findings])
        verdict = count(len(each.findings), "finding") if each.findings else "complete, nothing is changed or disturbed"
        yield clean(f"{each.path}: suite {each.suite or 'unknown'}: {verdict}")
