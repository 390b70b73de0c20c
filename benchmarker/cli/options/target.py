"""A file or module that a user names instead of a problem, such as `softmax.py:fused`, as options of a command."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from benchmarker.hooks import parameters, registry
from benchmarker.records.factors import FUNCTION


def is_target(word: str) -> bool:
    """Whether a word names a file, `softmax.py` or `softmax.py:fused`, or what a module has, `package.module:NAME`."""
    name, colon, _ = word.partition(":")
    if word.startswith("-") or "=" in word:
        return False
    return name.endswith(".py") or bool(colon and registry.source_file(name))


def targets(words: Sequence[str]) -> list[str]:
    """Return the words that are targets; the value of `--problem` is none."""
    return [word for before, word in pairwise(["", *words]) if before != "--problem" and is_target(word)]


def expanded(words: Sequence[str], *, every: bool = False, frameworks: bool = True) -> list[str]:
    """Return the words with the options that the first target among them stands for.

    That is the problem, the function if it names one, or with `every` all of the file, and the frameworks that the file
    is for. What is given as an option stays. Raises `UserError` if the file cannot be read.
    """
    for target in targets(words)[:1]:
        name, _, functions = target.partition(":")
        kind, options = registry.problem(name), [f"--problem={name}"]
        given = {word.partition("=")[0] for word in words}
        if every and not functions and f"--{FUNCTION}" not in given:
            (functions,) = (",".join(field.choices) for field in parameters.fields(kind) if field.name == FUNCTION)
        if functions:
            options.append(f"--{FUNCTION}={functions}")
        if frameworks and "--framework" not in given:
            options.append(f"--framework={','.join(kind.frameworks or ())}")
        at = list(words).index(target)
        return [*words[:at], *options, *words[at + 1 :]]
    return list(words)
