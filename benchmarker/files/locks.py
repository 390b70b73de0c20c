"""Locks on files and folders, and temporary folders that are locked while they are in use.

A lock ends with its process, even if that is killed.
"""

import errno
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarker.api.errors import UserError

FOLDER_LOCK = ".lock"
"""A file that is locked for its folder where the file system locks only what is open for writing, as NFS does."""


@contextmanager
def locked(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Lock a file or a folder against other processes, of other machines too if the file system does.

    Raises BlockingIOError if another process holds it, unless it is to `wait`; `UserError` if the file system has no
    locks; other OSErrors if it cannot be opened.
    """
    operation = fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB
    if path.is_dir():
        try:
            held = _lock(path, os.O_RDONLY, operation)
        except OSError as error:
            if error.errno != errno.EBADF:
                raise
            held = _lock(path / FOLDER_LOCK, os.O_RDWR | os.O_CREAT, operation)
    else:
        held = _lock(path, os.O_RDWR, operation)
    try:
        yield
    finally:
        os.close(held)


def _lock(path: Path, flags: int, operation: int) -> int:
    """Open a file or a folder and lock it; returns its descriptor."""
    held = os.open(path, flags | os.O_NOFOLLOW, 0o644)
    try:
        fcntl.flock(held, operation)
    except BaseException as error:
        os.close(held)
        if isinstance(error, OSError) and error.errno in (errno.ENOSYS, errno.EOPNOTSUPP):
            raise UserError(
                f"{path}: its file system has no locks; mount Lustre with -o flock, or use a folder elsewhere"
            ) from error
        raise
    return held


_PREFIX = "benchmarker-scratch-"
_RANDOM = "????????"
"""What `tempfile` appends. Nobody else's folder may match: it would be deleted."""
_YOUNG_S = 60.0
"""A folder of this age may not be locked yet by the process that makes it."""


def temporary() -> Path:
    """Return the system's folder for temporary files; raises `UserError` if none can be written."""
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        raise UserError("no folder for temporary files can be written; name one with TMPDIR") from error


@contextmanager
def scratch() -> Iterator[Path]:
    """A new folder for temporary files, deleted at the end; first, those of processes that were killed are deleted."""
    parent = temporary()
    for left in parent.glob(f"{_PREFIX}{_RANDOM}/"):
        with suppress(OSError), locked(left):  # not ours, or in use
            if time.time() - left.stat().st_mtime > _YOUNG_S:
                shutil.rmtree(left)
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=parent) as name, locked(Path(name)):
        yield Path(name)
