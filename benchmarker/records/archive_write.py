"""Add rows to an archive: one writer at a time, each part atomically, and nothing twice."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from benchmarker.api.errors import UserError, attempt
from benchmarker.files import atomic
from benchmarker.files.locks import locked
from benchmarker.records import archive
from benchmarker.records.archive_rows import (
    AT_ONCE,
    GROUP,
    SCHEMAS,
    SORTED,
    bytes_of,
    damage,
    dataset,
    in_order,
    over,
    part_name,
    placed,
    table_of,
)

MOST_BYTES = 256 << 20
"""Largest sum of the parts that are merged, before compression: a merged part is rewritten no more than a few times."""
MANY = 16
"""So many small parts of a year are merged into one."""
Row = Mapping[str, Any]


def create(path: Path) -> None:
    """Create an archive, unless it exists; raises `UserError` if it cannot be written."""
    with attempt(f"cannot write to {path}", "name another folder with --to"):
        path.mkdir(parents=True, exist_ok=True)
        with locked(path, wait=True):
            archive.create(path)


def commit(path: Path, trials: Sequence[Row], files: Sequence[Row]) -> dict[str, str]:
    """Add trials and files of their runs; return the digests of the trials that are in the archive already, by id.

    Those are not added again. No trial may be given twice. The trials of a year appear together. Raises `UserError` if
    the archive cannot be written, or if a part is damaged, because it is not known then what it contains.
    """
    with attempt(f"cannot write to {path}", "free some space, and add again"), locked(path, wait=True):
        archive.check(path)
        sweep(path)
        known_files = _known(path, archive.RUNS, "run_id", {row["run_id"] for row in files})
        there = {(row["run_id"], row["name"], row["sha256"]) for row in known_files}
        known = _known(path, archive.TRIALS, "trial_id", {row["trial_id"] for row in trials})
        digests = {row["trial_id"]: row["sha256"] for row in known}
        year_of = {row["run_id"]: _year(row) for row in trials}
        new = [row for row in files if (row["run_id"], row["name"], row["sha256"]) not in there]
        _write(path, archive.RUNS, new, lambda row: year_of[row["run_id"]])
        _write(path, archive.TRIALS, [row for row in trials if row["trial_id"] not in digests], _year)
        for table in (archive.RUNS, archive.TRIALS):
            for folder in (path / table).glob("year=*"):
                _merge(path, table, folder)
        return digests


def sweep(path: Path) -> None:
    """Finish what killed writers began: delete half-written files, and the parts that a merged one replaced."""
    for table in (archive.RUNS, archive.TRIALS):
        for half in (path / table).glob("year=*/.*.tmp"):
            half.unlink()
        for note in (path / table).glob(f"year=*/.*{archive.REPLACES}"):
            _finish(note)


def _known(path: Path, table: str, key: str, wanted: set[str]) -> list[dict[str, Any]]:
    """Return the rows of a table that have one of these keys; raises `UserError` if a part is damaged."""
    columns = [name for name in ("trial_id", "run_id", "name", "sha256") if name in SCHEMAS[table].names]

    def ask(parts: list[Path]) -> list[dict[str, Any]]:
        if not parts or not wanted:
            return []
        is_wanted = ds.field(key).isin(sorted(wanted))
        rows: list[dict[str, Any]] = dataset(parts, table).to_table(columns, filter=is_wanted).to_pylist()
        return rows

    rows, faults = over(path, table, ask)
    if faults:
        raise UserError(f"{faults[0]}; nothing was added")
    return rows


def _year(trial: Row) -> int:
    return datetime.fromtimestamp(trial["started_s"], UTC).year


def _write(path: Path, table: str, rows: Iterable[Row], year_of: Callable[[Row], int]) -> None:
    """Write rows as a new part of each of their years."""
    by_year: dict[int, list[Row]] = {}
    for row in rows:
        by_year.setdefault(year_of(row), []).append(row)
    for year, several in by_year.items():
        folder = path / table / f"year={year:04}"
        folder.mkdir(parents=True, exist_ok=True)
        part = table_of(table, several)
        _save(folder, str(part["part"][0]), table, [part])


def _save(folder: Path, name: str, table: str, groups: Iterable[pa.Table]) -> None:
    """Write a part atomically."""
    with (
        atomic.whole(folder / f"{name}.parquet") as file,
        pq.ParquetWriter(file, SCHEMAS[table], compression="zstd", write_page_checksum=True) as writer,
    ):
        for rows in groups:
            writer.write_table(rows, GROUP)


def _merge(path: Path, table: str, folder: Path) -> None:
    """Merge the smallest parts of a year if they are many; a damaged one stays as it is."""
    of_year = [part for part in archive.parts(path, table) if part.parent == folder]
    if len(of_year) < MANY:
        return
    sizes = sorted((size, part) for part in of_year if (size := _bytes(part)) is not None)
    sums = accumulate(size for size, _ in sizes)
    small = [part for (_, part), total in zip(sizes, sums, strict=True) if total <= MOST_BYTES]
    if len(small) < MANY or any(map(damage, small)):
        return
    ordered = in_order(table, _indexed(small, table))
    name = part_name(ordered["sha256"])
    note = archive.note_of(folder / f"{name}.parquet")
    atomic.write(note, msgspec.json.encode([part.name for part in small]))
    groups = _together(small, table, ordered["file"].to_numpy())
    _save(folder, name, table, (placed(rows, name, at * GROUP) for at, rows in enumerate(groups)))
    _finish(note)


def _indexed(parts: Sequence[Path], table: str) -> pa.Table:
    """Return what the rows of parts are sorted by, with their digests and `file`, the number of the part of each."""
    columns = [*dict.fromkeys((*SORTED[table], "sha256"))]
    read = [dataset([part], table).to_table(columns) for part in parts]
    return pa.concat_tables(
        rows.append_column("file", pa.array([number] * len(rows), pa.int64())) for number, rows in enumerate(read)
    )


def _together(parts: Sequence[Path], table: str, file_of_row: np.ndarray) -> Iterator[pa.Table]:
    """Yield the rows of parts, sorted, one row group at a time: little more than that is in memory.

    `file_of_row` has the number of the part of each of the sorted rows.
    """
    columns = [name for name in SCHEMAS[table].names if name not in ("part", "row")]
    with ExitStack() as stack:
        files = [stack.enter_context(pq.ParquetFile(part, page_checksum_verification=True)) for part in parts]
        batches = [file.iter_batches(AT_ONCE, columns=columns, use_threads=False) for file in files]
        ahead = [pa.table([[] for _ in columns], pa.schema(map(SCHEMAS[table].field, columns)))] * len(parts)
        for start in range(0, len(file_of_row), GROUP):
            group = []
            for file, rows in enumerate(np.bincount(file_of_row[start : start + GROUP], minlength=len(parts)).tolist()):
                while len(ahead[file]) < rows:
                    ahead[file] = pa.concat_tables([ahead[file], pa.Table.from_batches([next(batches[file])])])
                group.append(ahead[file].slice(0, rows))
                ahead[file] = ahead[file].slice(rows)
            yield in_order(table, pa.concat_tables(group))


def _bytes(part: Path) -> int | None:
    """Return the bytes of a part before it was compressed; None if it is damaged."""
    try:
        return bytes_of(pq.read_metadata(part))
    except (OSError, pa.ArrowException):
        return None


def _finish(note: Path) -> None:
    """Delete the parts that a merged one replaced, if it is there, and then the file that says so."""
    if archive.merged_of(note).exists():
        for part in archive.replaced_by(note):
            part.unlink(missing_ok=True)
        descriptor = os.open(note.parent, os.O_RDONLY)
        with suppress(OSError):
            os.fsync(descriptor)  # the parts must not come back without the note after a power failure
        os.close(descriptor)
    note.unlink(missing_ok=True)
