"""Results as sides: several folders are kept apart, each with its own trials, and named after where they are.

A single folder is one side without a name, however many runs it contains.
"""

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarker.api.errors import UserError
from benchmarker.files.atomic import Fault
from benchmarker.records import store
from benchmarker.records.record import Record
from benchmarker.records.store import Where

SIDE = "side"
"""The factor that says on which side a configuration is; it has none if there is only one side."""
LONG = 16
"""Longer paths are not names for a column: they lose the folder that all share, and a run is called after its time."""
_RUN = re.compile(r"(\d{8}T\d{6})\.\d{6}-[0-9a-f]{8}")


@dataclass(frozen=True, slots=True)
class Side:
    """A side: its name and its trials."""

    name: str
    records: tuple[Record, ...]


def named(results: Sequence[Path], *, pool: bool = False) -> list[tuple[str, list[Path]]]:
    """Return results by side, with its name: each folder is one, and files belong to the side of their folder.

    With `pool`, all are one side, which has no name.
    """
    folders: dict[Path, list[Path]] = {}
    for result in results:
        folder = result if result.is_dir() else result.parent
        folders.setdefault(Path() if pool else folder.resolve(), []).append(result)
    groups = list(folders.values())
    paths = [group[0] if group[0].is_dir() else group[0].parent for group in groups]
    return list(zip(short_names(paths) if len(groups) > 1 else [""], groups, strict=True))


def read(results: Sequence[Path], *, pool: bool = False, where: Where | None = None) -> tuple[list[Side], list[Fault]]:
    """Read results as sides, of records that fit `where`, and every fault; a side without a record is left out.

    Raises `UserError` if two sides contain the same trial, or if none fits.
    """
    groups, faults = [], []
    for name, group in named(results, pool=pool):
        records, unread = store.read(group, where)
        faults += unread
        groups.append((name, records))
    refuse_twice(groups)
    fitting = [records for _, records in groups]
    if where and (any(fitting) or not faults):
        fitting = where.fitting(groups)
    return [Side(name, tuple(of)) for (name, _), of in zip(groups, fitting, strict=True) if of], faults


def refuse_twice(sides: Iterable[tuple[str, Sequence[Record]]]) -> None:
    """Raise `UserError` if two sides contain the same trial."""
    trials: dict[str, str] = {}
    for name, records in sides:
        for record in records:
            if trials.setdefault(record.trial_id, name) != name:
                raise UserError(
                    f"{trials[record.trial_id]} and {name} both contain the trial {record.trial_id}; leave one out"
                )


def short_names(paths: Sequence[Path]) -> list[str]:
    """Return a name for each of several folders: its path, or something shorter if paths are long."""
    names = [str(path) for path in paths]
    if max(map(len, names)) <= LONG:
        return names
    whole = [path.absolute() for path in paths]
    shared = Path(os.path.commonpath([path.parent for path in whole]))
    names = [str(path.relative_to(shared)) for path in whole]
    shorter = [_RUN.sub(r"\1", name) for name in names]
    return shorter if len(set(shorter)) == len(names) else names


def side_of(results: Sequence[tuple[str, Sequence[Record]]]) -> dict[str, str]:
    """Return the name of the side of each trial, by its id; none if there is only one side."""
    names = short_names([Path(name) for name, _ in results]) if len(results) > 1 else ()
    return {record.trial_id: name for name, (_, records) in zip(names, results, strict=False) for record in records}
