"""Read an untrusted zip safely: exactly one archive, of a limited number of files; every defect raises one exception.

`zipfile` alone accepts bytes before and after an archive, and reads any number of entries into memory.
"""

import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any

_CHUNK_BYTES = 2**20
_ENCRYPTED = 0x1
_SMALL_BYTES, _RATIO = 2**20, 100
_ENTRY_BYTES = 2**11
"""Largest mean size of an entry in the directory: far more than a name that can be unpacked needs."""
_FILE = struct.Struct("<4s22x2H")
"""Header before each file, with the lengths of its name and its extra field (APPNOTE.TXT 4.3.7)."""
_ENTRY = struct.Struct("<4s24x3H12x")
"""Entry in the directory, with the lengths of its name, its extra field and its comment (4.3.12)."""
_END_64 = struct.Struct("<4s8x4x2L4Q")
"""End of the directory: two disk numbers, two numbers of entries, size and offset of the directory (4.3.14)."""
_LOCATOR_64 = struct.Struct("<4s16x")
"""Locator of the record before, present in a large zip (4.3.15)."""
_END = struct.Struct("<4s4H2LH")
"""End of the directory, the last record of a zip: fields as before, and the length of a comment (4.3.16)."""
_NO_ZIP = "is not a zip file, or is truncated or damaged"


class DamagedError(Exception):
    """A zip, or a file in it, cannot be read; the message is the reason."""


@contextmanager
def _damage(prefix: str = "", suffix: str = "") -> Iterator[None]:
    """Turn everything that the standard library raises for a damaged zip into `DamagedError`."""
    try:
        yield
    except (
        zipfile.BadZipFile,
        zlib.error,
        struct.error,
        EOFError,
        OSError,
        OverflowError,
        RuntimeError,
        ValueError,
    ) as error:
        raise DamagedError(f"{prefix}{error or 'it is truncated'}{suffix}") from error


@dataclass(frozen=True, slots=True)
class Entry:
    """A file in the directory of a zip, with its name and claimed size as listed there."""

    info: zipfile.ZipInfo

    @property
    def name(self) -> str:
        """The name, including a NUL and anything after it."""
        return self.info.orig_filename

    @property
    def size_bytes(self) -> int:
        """The claimed size when unpacked."""
        return self.info.file_size

    @property
    def trouble(self) -> str | None:
        """Why the file cannot be unpacked, or None if it can."""
        kind = stat.S_IFMT(self.info.external_attr >> 16)
        if kind not in (0, stat.S_IFREG):
            return "a link" if kind == stat.S_IFLNK else "not a regular file"
        if self.info.flag_bits & _ENCRYPTED:
            return "encrypted"
        if self.info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            return f"compression method {self.info.compress_type}, which bundles do not use"
        return None


class Archive:
    """A zip in an open file.

    Raises `DamagedError` if the file is not one whole zip from its first byte to its last, or if it contains more than
    `max_files` files.
    """

    def __init__(self, file: IO[bytes], max_files: int) -> None:
        self.size_bytes = os.fstat(file.fileno()).st_size
        with _damage(f"{_NO_ZIP} (", ")"):
            directory_at = _find_directory(file, self.size_bytes, max_files)
            self._zip = zipfile.ZipFile(file)
            infos = self._zip.infolist()
            _refuse_gaps(file, infos, directory_at)
        self.entries = [Entry(info) for info in infos]

    def chunks(self, entry: Entry) -> Iterator[bytes]:
        """Yield the content in chunks, never more than the claimed size of the entry."""
        with _damage():
            source = self._zip.open(entry.info)
        with source:
            while True:
                with _damage():
                    chunk = source.read(_CHUNK_BYTES)
                if not chunk:
                    return
                yield chunk

    def most_bytes(self, limit: int) -> int:
        """Return how much of a file to read into memory: at most `limit`, and in proportion to the size of the zip."""
        return min(limit, _SMALL_BYTES + _RATIO * self.size_bytes)

    def content(self, entry: Entry, max_bytes: int) -> bytes:
        """Return the whole content of a small file. Raises `DamagedError` if it exceeds `max_bytes`."""
        if trouble := entry.trouble:
            raise DamagedError(trouble)
        if entry.size_bytes > max_bytes:
            raise DamagedError(f"larger than {max_bytes} bytes")
        return b"".join(self.chunks(entry))


def _read(file: IO[bytes], at: int, record: struct.Struct) -> tuple[Any, ...]:
    """Return the fields of a record; raises `struct.error` if it is not in the file."""
    file.seek(max(0, at))
    return record.unpack(file.read(record.size) if at >= 0 else b"")


def _find_directory(file: IO[bytes], size_bytes: int, max_files: int) -> int:
    """Return the offset of the directory, after a check that it is as long as the end of the zip states."""
    end = size_bytes - _END.size
    signature, *disks_and_counts, length, at, comment = _read(file, end, _END)
    if signature != b"PK\5\6" or comment:
        if _ends_earlier(file, size_bytes):
            raise DamagedError("has bytes after the end of its zip")
        raise DamagedError(f"{_NO_ZIP} (no end of a directory)")
    if end >= _LOCATOR_64.size and _read(file, end - _LOCATOR_64.size, _LOCATOR_64)[0] == b"PK\6\7":
        end -= _LOCATOR_64.size + _END_64.size
        signature, *disks_and_counts, length, at = _read(file, end, _END_64)
        if signature != b"PK\6\6":
            raise DamagedError(f"{_NO_ZIP} (no end of a large directory)")
    disk, first_disk, here, count = disks_and_counts
    if disk or first_disk or here != count:
        raise DamagedError(f"{_NO_ZIP} (a part of several)")
    if count > max_files:
        raise DamagedError(f"contains {count} files, more than the {max_files} of a bundle")
    if at + length != end:
        raise DamagedError("has bytes before its zip" if at + length < end else f"{_NO_ZIP} (no directory)")
    if length > count * _ENTRY_BYTES:
        raise DamagedError(f"{_NO_ZIP} (a directory of {length} bytes for {count} files)")
    file.seek(at)
    directory = file.read(length)
    position = 0
    for _ in range(count):
        signature, *lengths = _ENTRY.unpack_from(directory, position)
        if signature != b"PK\1\2":
            raise DamagedError(f"{_NO_ZIP} (a directory without its entries)")
        position += _ENTRY.size + sum(lengths)
    if position != length:
        raise DamagedError(f"{_NO_ZIP} (a directory with more than its entries)")
    return int(at)


def _ends_earlier(file: IO[bytes], size_bytes: int) -> bool:
    """Whether the end of a zip stands before the end of the file, as far back as `zipfile` looks."""
    file.seek(max(0, size_bytes - 2**16 - _END.size))
    last = file.read()
    return 0 <= last.rfind(b"PK\5\6") < len(last) - _END.size


def _refuse_gaps(file: IO[bytes], infos: Sequence[zipfile.ZipInfo], directory_at: int) -> None:
    """Raise `DamagedError` unless the files follow each other from the first byte to the directory."""
    position = 0
    for info in sorted(infos, key=lambda info: info.header_offset):
        if info.header_offset > position:
            raise DamagedError(f"has bytes before {info.orig_filename!a} that belong to no file")
        if info.header_offset < position:
            raise DamagedError(f"{_NO_ZIP} (files in it overlap)")
        _, *lengths = _read(file, position, _FILE)
        position += _FILE.size + sum(lengths) + info.compress_size
    if position != directory_at:
        what = "has bytes before its directory that belong to no file"
        raise DamagedError(what if position < directory_at else f"{_NO_ZIP} (files in it overlap)")
