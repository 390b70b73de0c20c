"""Files of the user that a model is made from: its config, its weights, and a file that gives inputs.

An option that names a file has a digest of the content behind the name, `config.json@44136fa355b3`. It is checked where
the file is read, so that a record says what was measured.
"""

import json
import re
import traceback
from collections.abc import Mapping
from hashlib import sha256
from inspect import signature
from pathlib import Path
from typing import Any

from benchmarker import UserError
from benchmarker_problems.own import imported
from benchmarker_problems.own.code import PythonFile

DIGITS = 12
"""Digits of a digest that stand behind the name of a file."""
WHOLE = 2**26
"""Most bytes of a file that are read for its digest; of a larger one, `PIECES` are."""
PIECES = 64
"""Pieces of a large file for its digest, of `PIECE` bytes each, evenly spread: among them the first and the last."""
PIECE = 2**16
SEED = "seed"
"""The parameter of `inputs` in a file that is no option: each set of inputs has a seed of its own."""


def with_digest(option: str, name: str) -> str:
    """Return the name of a file with its digest; raises `UserError` if it cannot be read."""
    if not name or re.search(f"@[0-9a-f]{{{DIGITS}}}$", name):
        return name
    return f"{name}@{_digest(option, name)}"


def unchanged(option: str, named: str) -> Path:
    """Return the file that a name with a digest is of; raises `UserError` if its content is another one by now."""
    name, _, digest = named.rpartition("@")
    if _digest(option, name) != digest:
        raise UserError(f"{name} changed after the run was planned; start a new run")
    return Path(name)


def read_object(option: str, named: str) -> dict[str, Any]:
    """Return the JSON object in a file, which is empty without a file; raises `UserError` if it is none."""
    if not named:
        return {}
    path = unchanged(option, named)
    try:
        values = json.loads(path.read_bytes())
    except ValueError as error:
        raise UserError(f"--{option}={path}: not JSON: {error}") from error
    if not isinstance(values, dict):
        raise UserError(f"--{option}={path}: not a JSON object")
    return values


def given_inputs(named: str, options: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Return what the function `inputs` of a file returns: arguments of a model by name; nothing without a file.

    It gets those of the options, and the seed, that it has parameters for. Raises `UserError` with the line of the file
    in which anything went wrong.
    """
    if not named:
        return {}
    path = unchanged("inputs", named)
    try:
        module = imported(PythonFile(path.name, path.absolute(), sha256(path.read_bytes()).hexdigest()))
        function = getattr(module, "inputs", None)
        if not callable(function):
            raise UserError(f"{path} defines no function `inputs`, which returns arguments of the model by name")
        parameters = signature(function).parameters.values()
        known = {**options, SEED: seed}
        if off := next((each.name for each in parameters if each.name not in known and each.default is each.empty), ""):
            raise UserError(f"{path}: inputs takes {off!r}, which is no option; it may take {', '.join(known)}")
        returned = function(**{each.name: known[each.name] for each in parameters if each.name in known})
    except UserError:
        raise
    except Exception as error:
        lines = [
            each.lineno for each in traceback.extract_tb(error.__traceback__) if each.filename == str(path.absolute())
        ]
        line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
        words = " ".join(f"{type(error).__name__}: {error}".split())
        raise UserError(f"{path}:{line}: {words}" if line else f"{path}: {words}") from error
    if not isinstance(returned, dict) or not returned or not all(isinstance(name, str) for name in returned):
        raise UserError(f"{path}: inputs returned {type(returned).__name__}; return a dict of arguments by name")
    return returned


def cannot_be_made(name: str) -> str:
    """Return the words for an argument that nothing tells how to make, after the name of a model."""
    return f"needs the argument {name!r}, which cannot be made from its config; give it by a file, --inputs=FILE.py"


def _digest(option: str, name: str) -> str:
    try:
        with Path(name).open("rb") as file:
            size = file.seek(0, 2)
            whole = size <= WHOLE
            starts = [0] if whole else [round(number * (size - PIECE) / (PIECES - 1)) for number in range(PIECES)]
            found = sha256(b"" if whole else str(size).encode())
            for start in starts:
                file.seek(start)
                found.update(file.read(size if whole else PIECE))
            return found.hexdigest()[:DIGITS]
    except OSError as error:
        raise UserError(f"--{option}={name}: {error.strerror}") from error
