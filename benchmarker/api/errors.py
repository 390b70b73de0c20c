"""The one exception that is the user's to mend."""


class UserError(Exception):
    """A mistake or a lack that the user can mend: its text is one line and names the remedy.

    The command line prints the text and exits with status 2; everything else that is raised is a bug and
    shows its traceback.
    """
