"""Write files atomically, and read them back with every fault reported."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedRandom
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from benchmarker.api.errors import UserError
from benchmarker.files import regular


def as_json(value: Any) -> bytes:
    r"""Encode a value as JSON, as msgspec does, with a byte 0xff of a name that is not UTF-8 as the text `\udcff`."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_escaped(msgspec.to_builtins(value)))


def _escaped(value: Any) -> Any:
    if isinstance(value, dict):
        return {_escaped(name): _escaped(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_escaped(part) for part in value]
    return value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value


_T = TypeVar("_T", bound=Struct)


@dataclass(frozen=True, slots=True)
class Fault:
    """A file that could not be read as expected: its path, and the reason with the position in the file."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


def write(path: Path, content: bytes) -> None:
    """Write `content` to `path` atomically: to a temporary file next to it, flushed to the disk, then renamed.

    Raises OSError if that fails, and leaves no temporary file behind.
    """
    with whole(path) as file:
        file.write(content)


def save(path: Path, content: bytes) -> None:
    """Write a file that the user has named, atomically; raises `UserError` if that fails."""
    try:
        write(path, content)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error


@contextmanager
def whole(path: Path) -> Iterator[BufferedRandom]:
    """Open a temporary file next to `path` that replaces it if the context ends without an error; raises OSError."""
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
        os.fsync(folder)  # the new name must survive a power failure too
    finally:
        os.close(folder)


def encode(value: Struct) -> bytes:
    """Encode a record or a plan as indented JSON."""
    return msgspec.json.format(as_json(value), indent=1) + b"\n"


def decode(path: Path, read: Callable[[bytes], _T]) -> _T | Fault:
    """Decode a file's content with `read`; return a `Fault` if it cannot be read or is invalid."""
    try:
        content = regular.content(path)
    except OSError as error:
        return Fault(path, error.strerror or str(error))
    return parse(path, content, read)


def parse(path: Path, content: bytes, read: Callable[[bytes], _T]) -> _T | Fault:
    """Decode the content of the file at `path` with `read`; return a `Fault` if it is invalid."""
    try:
        return read(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError, AttributeError) as error:
        return Fault(path, str(error))  # the last three: content that no run writes, e.g. endless nesting
