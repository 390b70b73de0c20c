"""Add runs to an archive: their records, plans and ceilings, from folders, bundles and other archives."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarker.api.errors import UserError
from benchmarker.bundles.unpack import unbundle
from benchmarker.files import atomic, regular
from benchmarker.files.atomic import Fault
from benchmarker.files.locks import scratch
from benchmarker.formatting import count
from benchmarker.records import archive, archive_rows, archive_write, reading, store

_MOST_ROWS = 10_000
"""So many trials are added at once; a longer run is added in several steps."""
_ZIP = b"PK\x03\x04"
_KEPT = (store.PLAN, store.CEILINGS)
"""Files of a run that are kept beside its records."""


@dataclass
class Added:
    """The number of trials that were added, and of those that were there before; and every file that was left out."""

    trials: int = 0
    present: int = 0
    runs: set[str] = field(default_factory=set)
    faults: list[Fault] = field(default_factory=list)

    def __str__(self) -> str:
        there = f"; {count(self.present, 'trial was', 'trials were')} there already" if self.present else ""
        return f"added {count(self.trials, 'trial')} of {count(len(self.runs), 'run')}{there}"


def add(results: Sequence[Path], to: Path, tell: Callable[[str], None] = lambda _: None) -> Added:
    """Add the records, plans and ceilings of results to an archive, which is created with the first of them.

    A result is a record, the folder of a run, a folder of runs, a bundle, which is verified first, or another archive.
    A trial that is in the archive is not added again; another record of it is a fault, as is a file that cannot be
    read. `tell` is called with what was added so far. Raises `UserError` if the archive cannot be written.
    """
    added = Added()
    batch = _Batch(to, added, tell)
    for result in results:
        if _is_zip(result):
            with scratch() as folder:
                if faults := _unpack(result, folder):
                    added.faults += faults
                else:
                    _add(folder, batch)
        else:
            _add(result, batch)
    batch.commit()
    return added


class _Batch:
    """What is added at once: the records of several runs, each whole unless it is very long, and their other files."""

    def __init__(self, to: Path, added: Added, tell: Callable[[str], None]) -> None:
        self._to = to
        self._added = added
        self._tell = tell
        self._clear()

    def _clear(self) -> None:
        self._trials: dict[str, dict[str, Any]] = {}
        self._files: dict[tuple[str, str, str], dict[str, Any]] = {}
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether it should be added before more is read."""
        return self._bytes > archive_rows.MOST_BYTES or len(self._trials) > _MOST_ROWS

    def fault(self, fault: Fault) -> None:
        """Note a file that is left out."""
        self._added.faults.append(fault)

    def record(self, path: Path, content: bytes) -> str | None:
        """Take a record, and return its run; None if it is not valid."""
        record = atomic.parse(path, content, reading.read)
        if isinstance(record, Fault):
            self.fault(record)
            return None
        try:
            row = archive_rows.row_of(record, content)
        except ValueError as error:
            self.fault(Fault(path, str(error)))
            return None
        known = self._trials.setdefault(record.trial_id, row)
        if known is not row:
            self._twice(path, row, known["sha256"])
        row["path"] = path
        self._bytes += len(content)
        return record.run_id

    def file(self, run_id: str, name: str, content: bytes) -> None:
        """Take another file of a run."""
        digest = hashlib.sha256(content).hexdigest()
        row = {"run_id": run_id, "name": name, "sha256": digest, "content": content.decode()}
        self._files.setdefault((run_id, name, digest), row)
        self._bytes += len(content)

    def _twice(self, path: Path, row: dict[str, Any], sha256: str) -> None:
        """Note a trial of which there is a record already: the same one, or another."""
        if row["sha256"] == sha256:
            self._added.present += 1
        else:
            self.fault(Fault(path, f"another record of trial {row['trial_id']} is there already; left out"))

    def commit(self) -> None:
        """Add what was taken."""
        if not self._trials:
            return
        archive_write.create(self._to)
        trials = list(self._trials.values())
        known = archive_write.commit(self._to, trials, list(self._files.values()))
        for row in trials:
            if row["trial_id"] in known:
                self._twice(row["path"], row, known[row["trial_id"]])
            else:
                self._added.trials += 1
                self._added.runs.add(row["run_id"])
        self._clear()
        self._tell(str(self._added))


Named = list[tuple[Path, bytes]]


def _add(result: Path, batch: _Batch) -> None:
    """Take everything of a result, and add what is complete."""
    for records, files in (_of_archive if archive.is_archive(result) else _of_folders)(result, batch.fault):
        runs = {run_id for path, content in records if (run_id := batch.record(path, content))}
        for run_id in runs:
            for path, content in files.get(run_id, files.get("", ())):
                batch.file(run_id, path.name, content)
        if batch.is_full:
            batch.commit()


Part = tuple[Named, Mapping[str, Named]]
"""Records with their paths, and the other files of each run, or under an empty name those of all."""


def _of_folders(result: Path, fault: Callable[[Fault], None]) -> Iterator[Part]:
    by_folder: dict[Path, list[Path]] = {}
    unread: list[OSError] = []
    for file in store.record_files(result, unread.append):
        by_folder.setdefault(file.parent, []).append(file)
    for error in unread:
        fault(Fault(Path(error.filename), str(error.strerror)))
    if not by_folder and not unread:
        fault(Fault(result, "contains no record" if result.exists() else "no such file or folder"))
    for folder, paths in by_folder.items():
        files = {"": _contents([folder / name for name in _KEPT if (folder / name).exists()], fault)}
        for start in range(0, len(paths), _MOST_ROWS):
            yield _contents(paths[start : start + _MOST_ROWS], fault), files


def _contents(paths: Sequence[Path], fault: Callable[[Fault], None]) -> Named:
    """Return the content of files, and note those that cannot be read."""
    read = []
    for path in paths:
        try:
            read.append((path, regular.content(path)))
        except OSError as error:
            fault(Fault(path, error.strerror or str(error)))
    return read


def _of_archive(result: Path, fault: Callable[[Fault], None]) -> Iterator[Part]:
    """Yield the records of each part of another archive."""
    by_run: dict[str, Named] = {}
    for name in _KEPT:
        for path, content in store.beside(result, name):
            if isinstance(content, Fault):
                fault(content)
            else:
                by_run.setdefault(path.parent.name, []).append((path, content))
    for records, faults in archive_rows.by_part(result):
        for each in faults:
            fault(each)
        yield records, by_run


def _is_zip(path: Path) -> bool:
    try:
        with regular.opened(path) as file:
            return file.read(len(_ZIP)) == _ZIP
    except OSError:
        return False


def _unpack(bundle: Path, folder: Path) -> list[Fault]:
    """Verify a bundle, and unpack it if it has no fault; return its faults."""
    try:
        done = unbundle(bundle, folder)
    except UserError as error:
        return [Fault(bundle, str(error).removeprefix(f"{bundle} ").removeprefix(f"{bundle}: "))]
    return [Fault(bundle / fault.path, fault.reason) for fault in done.faults]
