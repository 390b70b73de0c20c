"""The exception for errors that the user can fix."""


class UserError(Exception):
    """An error that the user can fix; its text is one line and names the remedy.

    The command line prints the text and exits with status 2. Any other exception is a bug and shows its traceback.
    """
