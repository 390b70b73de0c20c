"""What functions of stored results share: their paths, and what is said of files that cannot be read."""

import warnings
from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path

from benchmarker.api.errors import UserError
from benchmarker.files.atomic import Fault
from benchmarker.records.store import Where


def paths(results: Sequence[str | PathLike[str]]) -> list[Path]:
    """Return the paths of results; raises `UserError` if there is none."""
    if not results:
        raise UserError("no result is given; name records, runs, or folders of runs")
    return [Path(result) for result in results]


def conditions(where: str | Sequence[str]) -> Where | None:
    """Return what selects records by NAME=VALUE or SQL, of which all must hold; None if nothing does."""
    if not where:
        return None
    from benchmarker.hooks.where import Conditions  # Arrow takes longer to import than everything else

    return Conditions([where] if isinstance(where, str) else where)


def warn_of(faults: Iterable[Fault | str]) -> None:
    """Warn of each file that cannot be read."""
    for fault in faults:
        warnings.warn(f"left out: {fault}", stacklevel=4)


def refuse_empty(names: Sequence[str]) -> None:
    """Raise `UserError` with the names of results that have no record, if there are any."""
    if names:
        raise UserError(f"no record was read from {', '.join(names)}; name records, runs, or folders of runs")


def traces_among(results: Sequence[Path]) -> list[Path]:
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
