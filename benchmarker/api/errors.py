"""Exceptions: errors that the user can fix, a failed trial, and the request to end."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal


class UserError(Exception):
    """An error that the user can fix; its text is one line and names the remedy.

    The command line prints the text and exits with status 2, and a notebook shows it alone. Any other exception is a
    bug and shows its traceback.
    """

    def _render_traceback_(self) -> list[str]:
        """Return what IPython shows of an uncaught one, by its protocol: the text alone."""
        return [f"{type(self).__name__}: {self}"]


@contextmanager
def concerning(what: object) -> Iterator[None]:
    """Begin the text of a `UserError` with what it concerns, such as a file."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{what}: {error}") from error


@contextmanager
def attempt(what: str, remedy: str) -> Iterator[None]:
    """Turn an OSError into a `UserError`: what cannot be done, why, and the remedy."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{what}: {error.strerror or error}; {remedy}") from error


class TrialError(UserError):
    """What a trial measures has failed, of which the `kind` is that of the record; `exit` is the status of a process.

    A negative status is the signal that ended it.
    """

    def __init__(
        self,
        message: str,
        kind: Literal["exception", "killed", "out_of_memory", "check"] = "exception",
        exit: int | None = None,  # noqa: A002 - the name in the record
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.exit = exit


class TerminatedError(KeyboardInterrupt):
    """SIGTERM asks this process to end; what cleans up after an interrupt cleans up after this too."""


def terminate(number: int, frame: object) -> None:
    """Handle SIGTERM; raises TerminatedError."""
    raise TerminatedError
