"""The layout of an archive: the folder that keeps the records of years in few files.

ARCHIVE/archive.json                          the version of the layout
ARCHIVE/trials/year=2026/<digest>.parquet     a part: a row for each trial, the record itself among its columns
ARCHIVE/runs/year=2026/<digest>.parquet       a part: a row for each plan and each file of ceilings of the runs

A part is written under a hidden name, flushed to disk and renamed, so it is there whole or not at all, and it is never
changed. When small parts are merged, a hidden file first says which parts the merged one replaces: it counts as soon as
it is there, and they do no longer.
"""

from pathlib import Path

import msgspec
from msgspec import Struct

from benchmarker.api.errors import UserError
from benchmarker.files import regular
from benchmarker.files.atomic import encode, write

HEAD = "archive.json"
"""The file that makes a folder an archive."""
VERSION = 1
TRIALS, RUNS = "trials", "runs"
REPLACES = ".replaces"
"""Ending of the hidden file that says which parts a merged one replaces."""


class Head(Struct, frozen=True):
    """The content of `archive.json`."""

    archive_version: int


def is_archive(path: Path) -> bool:
    """Whether a path is that of an archive, of any version."""
    return (path / HEAD).is_file()


def refuse(path: Path, what: str) -> None:
    """Raise `UserError` if a path is that of an archive, which does not keep what a command needs."""
    if is_archive(path):
        raise UserError(f"{path} is an archive, which keeps no {what}; name the folder of the run")


def check(path: Path) -> None:
    """Raise `UserError` unless this version can read the archive."""
    try:
        version = msgspec.json.decode(regular.content(path / HEAD), type=Head).archive_version
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path / HEAD}: {error}; put back a copy of this file") from error
    if version > VERSION:
        raise UserError(f"{path}: an archive of a newer version of benchmarker (version {version}); update this one")


def create(path: Path) -> None:
    """Make a folder an archive, unless it is one; raises `UserError` if there is something else in it."""
    if is_archive(path):
        check(path)
        return
    if any(not file.name.startswith(".") for file in path.iterdir()):
        raise UserError(f"{path} is no archive, and not empty; name an archive or a new folder with --to")
    write(path / HEAD, encode(Head(VERSION)))


def parts(path: Path, table: str) -> list[Path]:
    """Return the parts of a table that count, in order of their years."""
    found = set((path / table).glob("year=*/*.parquet"))
    for note in (path / table).glob(f"year=*/.*{REPLACES}"):
        if merged_of(note) in found:
            found -= set(replaced_by(note))
    return sorted(found)


def note_of(merged: Path) -> Path:
    """Return the path of the file that says which parts a merged one replaces."""
    return merged.with_name(f".{merged.name}{REPLACES}")


def merged_of(note: Path) -> Path:
    """Return the merged part of such a file."""
    return note.with_name(note.name.removeprefix(".").removesuffix(REPLACES))


def replaced_by(note: Path) -> list[Path]:
    """Return the parts that a merged one replaces; none if the file has gone, as they have too."""
    try:
        return [note.with_name(name) for name in msgspec.json.decode(note.read_bytes(), type=list[str])]
    except FileNotFoundError:
        return []
