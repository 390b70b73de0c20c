"""Locks on files and folders; a lock ends with its process, even if that is killed."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Lock a file or a folder against other processes.

    Raises BlockingIOError if another process holds it, unless it is to `wait`; other OSErrors if it cannot be opened.
    """
    held = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        fcntl.flock(held, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(held)
