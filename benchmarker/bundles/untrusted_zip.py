"""A zip that somebody else made, read with care: whatever is wrong with it is one exception."""

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
"""The least that stands before each file in a zip (APPNOTE.TXT 4.3.7)."""
_ENCRYPTED = 0x1


class DamagedError(Exception):
    """What cannot be read of a zip, and why."""


@contextmanager
def _damage() -> Iterator[None]:
    """Turn all that the standard library raises of a damaged zip into `DamagedError`."""
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
        raise DamagedError(str(error) or "it ends too early") from error


@dataclass(frozen=True, slots=True)
class Entry:
    """A file as the directory of a zip lists it: its name as it stands there, and the size that it claims."""

    info: zipfile.ZipInfo

    @property
    def name(self) -> str:
        """The name, a NUL and what follows it included."""
        return self.info.orig_filename

    @property
    def size_bytes(self) -> int:
        """The size when unpacked."""
        return self.info.file_size

    @property
    def trouble(self) -> str | None:
        """Why it is no file to unpack; None where it is one."""
        kind = stat.S_IFMT(self.info.external_attr >> 16)
        if kind not in (0, stat.S_IFREG):
            return "a link" if kind == stat.S_IFLNK else "not a plain file"
        if self.info.flag_bits & _ENCRYPTED:
            return "encrypted"
        if self.info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            return f"of compression {self.info.compress_type}, which no bundle uses"
        return None


class Archive:
    """A zip in an open file; raises `DamagedError` where it is none, or where files in it share bytes."""

    def __init__(self, file: IO[bytes]) -> None:
        self.size_bytes = os.fstat(file.fileno()).st_size
        with _damage():
            self._zip = zipfile.ZipFile(file)
        self.entries = [Entry(info) for info in self._zip.infolist()]
        if sum(_HEADER_BYTES + entry.info.compress_size for entry in self.entries) > self.size_bytes:
            raise DamagedError("files in it overlap")

    def chunks(self, entry: Entry) -> Iterator[bytes]:
        """The content in pieces, never more than the size that the entry claims."""
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
        """The whole content of a small file."""
        if trouble := entry.trouble:
            raise DamagedError(trouble)
        if entry.size_bytes > max_bytes:
            raise DamagedError(f"larger than {max_bytes} bytes")
        return b"".join(self.chunks(entry))
