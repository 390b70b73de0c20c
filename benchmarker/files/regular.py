"""Read files that a user or somebody's folder names: regular ones only, as a device or a pipe may never end."""

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

MOST_BYTES = 1 << 28
"""Largest file that is read whole: a record has 4 MB for 4,096 ranks."""


def check(path: Path) -> None:
    """Raise OSError if a path is not that of a regular file, but of a folder, a device or a pipe; it is not opened."""
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))


def opened(path: Path) -> BufferedReader:
    """Open a regular file for reading; raises OSError, also if it is not one."""
    check(path)
    return path.open("rb")


def content(path: Path) -> bytes:
    """Return the bytes of a regular file of at most `MOST_BYTES`; raises OSError."""
    with opened(path) as file:
        if os.fstat(file.fileno()).st_size > MOST_BYTES:
            raise OSError(errno.EFBIG, f"larger than {MOST_BYTES >> 20} MiB", str(path))
        return file.read()
