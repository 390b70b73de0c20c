"""Files that are written whole or not at all, and read back with every fault named."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedRandom
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

_T = TypeVar("_T", bound=Struct)


@dataclass(frozen=True, slots=True)
class Fault:
    """A file that could not be read as what it should be: where, at which place in it, and why."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


def write(path: Path, content: bytes) -> None:
    """Put `content` at `path` whole: written beside it, flushed to the disk, then renamed.

    Raises OSError, and then leaves nothing behind.
    """
    with whole(path) as file:
        file.write(content)


@contextmanager
def whole(path: Path) -> Iterator[BufferedRandom]:
    """A file that is written beside `path`, and takes its place when all has gone well; raises OSError."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the new name too must outlast a power cut
    finally:
        os.close(folder)


def encode(value: Struct) -> bytes:
    """A record or a plan as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


def decode(path: Path, read: Callable[[bytes], _T]) -> _T | Fault:
    """What a file's content is read as, or what is wrong with it."""
    try:
        return read(path.read_bytes())
    except OSError as error:
        return Fault(path, error.strerror or str(error))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError, AttributeError) as error:
        return Fault(path, str(error))  # the latter three are of what no run writes, as lists without an end
