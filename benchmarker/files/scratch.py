"""Folders for files that nobody keeps."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarker.api.errors import UserError
from benchmarker.files.locks import locked

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
