"""The threads of XLA's pool on the host, which JAX and TensorFlow start alike."""

from contextlib import suppress
from pathlib import Path

NAME = "tf_XLAEigen"


def pool_threads() -> int | None:
    """Return the number of threads in XLA's pool, counted in this process; None except on Linux."""
    tasks, number = Path("/proc/self/task"), 0
    if not tasks.is_dir():
        return None
    for task in tasks.iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread may end meanwhile
            number += (task / "comm").read_text().startswith(NAME)
    return number
