"""Exceptions: errors that the user can fix, and the request to end."""


class UserError(Exception):
    """An error that the user can fix; its text is one line and names the remedy.

    The command line prints the text and exits with status 2, and a notebook shows it alone. Any other exception is a
    bug and shows its traceback.
    """

    def _render_traceback_(self) -> list[str]:
        """Return what IPython shows of an uncaught one, by its protocol: the text alone."""
        return [f"{type(self).__name__}: {self}"]


class TerminatedError(KeyboardInterrupt):
    """SIGTERM asks this process to end; what cleans up after an interrupt cleans up after this too."""


def terminate(number: int, frame: object) -> None:
    """Handle SIGTERM; raises TerminatedError."""
    raise TerminatedError
