"""Locks on files and folders; a lock ends with its process, even if that is killed."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
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
