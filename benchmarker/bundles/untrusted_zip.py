"""Read an untrusted zip safely; every defect raises the same exception."""

from __future__ import annotations

import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

_CHUNK_BYTES = 2**20
_HEADER_BYTES = 30
"""Least size of the header before each file in a zip (APPNOTE.TXT 4.3.7)."""
_ENCRYPTED = 0x1


class DamagedError(Exception):
    """A zip, or a file in it, cannot be read; the message is the reason."""


@contextmanager
def _damage() -> Iterator[None]:
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
        raise DamagedError(str(error) or "it is truncated") from error


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
    """A zip in an open file. Raises `DamagedError` if it is not a zip, or if files in it share bytes."""

    def __init__(self, file: IO[bytes]) -> None:
        self.size_bytes = os.fstat(file.fileno()).st_size
        with _damage():
            self._zip = zipfile.ZipFile(file)
        self.entries = [Entry(info) for info in self._zip.infolist()]
        if sum(_HEADER_BYTES + entry.info.compress_size for entry in self.entries) > self.size_bytes:
            raise DamagedError("files in it overlap")

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

    def content(self, entry: Entry, max_bytes: int) -> bytes:
        """Return the whole content of a small file. Raises `DamagedError` if it exceeds `max_bytes`."""
        if trouble := entry.trouble:
            raise DamagedError(trouble)
        if entry.size_bytes > max_bytes:
            raise DamagedError(f"larger than {max_bytes} bytes")
        return b"".join(self.chunks(entry))
