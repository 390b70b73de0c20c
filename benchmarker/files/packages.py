"""Installed packages that are to be found before all others."""

import site
import sys


def put_first(folder: str) -> None:
    """Put a folder of installed packages first, also those that are installed in it as editable."""
    known, finders = sys.path[:], sys.meta_path[:]
    site.addsitedir(folder)
    sys.path[:] = [*(each for each in sys.path if each not in known), *known]
    sys.meta_path[:] = [*(each for each in sys.meta_path if each not in finders), *finders]
