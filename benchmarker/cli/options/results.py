"""RESULTs of commands that take records or traces."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchmarker.api.errors import UserError
from benchmarker.records import selection
from benchmarker.records.configurations import environment_of, factors

if TYPE_CHECKING:
    from benchmarker.records.record import Record

where_option = click.option(
    "--where",
    metavar="NAME=VALUE[,VALUE...]",
    multiple=True,
    help="Only cases in which a factor has one of these values; repeat the option to narrow further.",
)


def selected(records: Sequence[Record], where: Sequence[str]) -> list[Record]:
    """Return the records that `--where` selects; raises `UserError` if it selects none."""
    known = [{**environment_of(record), **factors(record.case)} for record in records]
    return [record for record, keep in zip(records, selection.where(where, known), strict=True) if keep]


def traces_of(results: Sequence[Path]) -> list[Path]:
    """Return the results if all are traces; empty if they are records, runs or folders of runs.

    Raises `UserError` if some are traces and others are not, or if a file is neither.
    """
    from benchmarker.traces.profile_files import is_trace, traces_in, what_else

    traces = [result for result in results if is_trace(result)]
    for result in results:
        if what := what_else(result):
            raise UserError(f"{result}: {what}; name a record, a run, a folder of runs, or a trace")
        if inside := traces_in(result):
            raise UserError(f"{result} contains no record, but traces; name one of them, such as {inside}")
    if traces and len(traces) < len(results):
        raise UserError(f"{traces[0]} is a trace, and other RESULTs are not; give either traces or records")
    return traces
