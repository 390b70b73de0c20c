"""Bytes of a trace file, whole or in pieces, compressed with gzip or not."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

from benchmarker.api.errors import UserError
from benchmarker.files import regular

_GZIP = b"\x1f\x8b"
_READ = 1 << 20
PIECE = 1 << 22
"""Most bytes that are returned at once."""
BOMB_BYTES, BOMB_RATIO = 1 << 28, 200
"""A file that expands to more bytes than this, by more than this ratio, is no trace: traces compress 10- to 40-fold."""


class Source:
    """A file's bytes, uncompressed; after reading, `cut_short` states whether the compressed data ended too early."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cut_short = False
        try:
            with regular.opened(path) as file:
                self.compressed = file.read(2) == _GZIP
        except OSError as error:
            raise UserError(f"{path}: {error.strerror}") from None

    def pieces(self) -> Iterator[bytes]:
        """Yield the bytes in order, at most `PIECE` at once. Raises `UserError` if they cannot be read."""
        try:
            with self.path.open("rb") as file:
                if self.compressed:
                    yield from self._unpacked(iter(lambda: file.read(_READ), b""))
                else:
                    yield from iter(lambda: file.read(PIECE), b"")
        except OSError as error:
            raise UserError(f"{self.path}: {error.strerror}") from None
        except zlib.error as error:
            raise UserError(f"{self.path}: damaged gzip data: {error}") from None

    def whole(self) -> bytes:
        """All bytes."""
        return b"".join(self.pieces())

    def _unpacked(self, packed: Iterator[bytes]) -> Iterator[bytes]:
        """Decompress every member of a gzip file, one after the other."""
        member = zlib.decompressobj(wbits=31)
        fed = given = 0
        for read in packed:
            data = read
            fed += len(data)
            while data:
                if member.eof:
                    member = zlib.decompressobj(wbits=31)
                piece = member.decompress(data, PIECE)
                given += len(piece)
                if given > max(BOMB_BYTES, BOMB_RATIO * fed):
                    raise UserError(
                        f"{self.path}: {fed} bytes expand to more than {given}: this is not a trace; "
                        "unpack it yourself if you trust it"
                    )
                data = member.unconsumed_tail or member.unused_data
                if piece:
                    yield piece
        if fed and not member.eof:
            rest = member.flush()
            self.cut_short = not member.eof
            if rest:
                yield rest
