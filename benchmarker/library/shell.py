"""Become a shell that executes a command: what a guard runs when it is no module."""

import os
import sys

if __name__ == "__main__":
    os.execv("/bin/sh", ["/bin/sh", "-c", sys.argv[1]])  # noqa: S606 - the command is the user's own
