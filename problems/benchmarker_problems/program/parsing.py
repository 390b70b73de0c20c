"""What finds figures in an output, and tells whether it is sane: a pattern, or a function in a file of the user."""

import ast
import re
import runpy
from pathlib import Path
from typing import Any, NamedTuple

from benchmarker import TrialError, UserError

_FUNCTION = re.compile(r"([^\s()\\]+\.py)(?::([A-Za-z_]\w*))?")
SHOWN = 200
"""Most characters of an error of such a function that are told."""


class Function(NamedTuple):
    """A function in a file in Python, called with what a program printed: its standard output, then its errors."""

    path: str
    name: str

    def __str__(self) -> str:
        return f"{self.path}:{self.name}"

    def refuse(self) -> None:
        """Raise `UserError` if there is no such function; the file is read, not executed."""
        try:
            body = ast.parse(Path(self.path).read_bytes()).body
        except OSError as error:
            raise UserError(f"{self.path}: {str(error.strerror).lower()}") from error
        except (SyntaxError, ValueError) as error:
            raise UserError(f"{self.path} is not Python: {error}") from error
        if self.name not in [each.name for each in body if isinstance(each, ast.FunctionDef)]:
            raise UserError(f"{self.path} defines no function {self.name}; write def {self.name}(output): ...")

    def __call__(self, text: str) -> Any:
        """Return what the function returns; raises `TrialError` if it fails."""
        try:
            return runpy.run_path(self.path, run_name="_of_user")[self.name](text)
        except (Exception, SystemExit) as error:
            said = f"{type(error).__name__}: {error}".rstrip(": ")[:SHOWN]
            raise TrialError(f"{self} failed: {said}", "check") from error


def function_of(text: str, name: str) -> Function | None:
    """Return the function that a text names, `FILE.py` or `FILE.py:NAME`, by default that of a `name`; None if none."""
    found = _FUNCTION.fullmatch(text)
    return Function(found[1], found[2] or name) if found else None


def pattern_of(what: str, text: str, groups: int = 0) -> re.Pattern[str]:
    """Return a pattern, in which ^ and $ match at each line; raises `UserError` if it is none."""
    try:
        pattern = re.compile(text, re.MULTILINE)
    except re.error as error:
        raise UserError(f"{what}: {text!r} is not a regular expression: {error}") from error
    if pattern.groups < groups:
        raise UserError(f"{what}: {text!r} has no group; put the number in parentheses, as in (\\S+)")
    return pattern


def check_sanity(line: str, text: str) -> None:
    """Raise `TrialError` if an output is not sane by a line of --sanity."""
    function = function_of(line, "sane")
    if function is None:
        if not pattern_of("--sanity", line).search(text):
            raise TrialError(f"the output has no match of --sanity={line}", "check")
    elif (answer := function(text)) is not True:
        raise TrialError(f"--sanity: {function} returned {answer!r:.80}, not True", "check")


def refuse_sanity(line: str) -> None:
    """Raise `UserError` if a line of --sanity is no pattern, or names no function that there is."""
    if function := function_of(line, "sane"):
        function.refuse()
    else:
        pattern_of("--sanity", line)
