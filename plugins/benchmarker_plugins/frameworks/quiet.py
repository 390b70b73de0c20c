"""Importing a library that writes to standard error what no setting suppresses."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def quiet(variable: str, value: str) -> Iterator[None]:
    """Set an environment variable, and drop what is written to standard error; neither if the user has set it."""
    if variable in os.environ:
        yield
        return
    os.environ[variable] = value
    stderr = os.dup(2)
    try:
        with Path(os.devnull).open("w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
