"""What a user names instead of a problem, such as `softmax.py:fused` or `-- ./stream 100`, as options of a command."""

import shlex
from collections.abc import Collection, Sequence
from itertools import pairwise

from benchmarker.api.problem import FUNCTION
from benchmarker.api.program import PROGRAM
from benchmarker.hooks import registry


def is_target(word: str) -> bool:
    """Whether a word names a file, `softmax.py` or `softmax.py:fused`, or what a module has, `package.module:NAME`."""
    name, function = _parted(word)
    if word.startswith("-") or "=" in word:
        return False
    return name.endswith(".py") or bool(function and registry.source_file(name))


def _parted(target: str) -> tuple[str, str]:
    """Return the file or module of a target, and the functions that it names; a file may have a colon in its name."""
    name, _, functions = (target, "", "") if target.endswith(".py") else target.rpartition(":")
    return name, functions


def targets(words: Sequence[str]) -> list[str]:
    """Return the words that are targets; the value of `--problem` is none."""
    return [word for before, word in pairwise(["", *words]) if before != "--problem" and is_target(word)]


def program_in(text: str) -> list[str]:
    """Return the options for a program and its arguments in a text, or the words of the text if it is no program."""
    words = shlex.split(text)
    return words if not words or is_target(words[0]) else [f"--problem={PROGRAM}{text}"]


def without(words: Sequence[str], options: Collection[str]) -> list[str]:
    """Return the words without some options and their values, as `--n=8` and `--n 8`."""
    left, following = [], iter(words)
    for word in following:
        if word in options:
            next(following, None)
        elif word.partition("=")[0] not in options:
            left.append(word)
    return left


def _with_program(words: Sequence[str], has_framework: bool) -> list[str]:
    """Return the words with options for the program that follows `--`, and for that of `--problem=program:...`."""
    at = words.index("--") if "--" in words else len(words)
    options, program = list(words[:at]), words[at + 1 :]
    if at < len(words):
        as_is = "--shell" in options  # a shell gets the words as they are
        quoted = (word if as_is or shlex.split(word) == [word] else shlex.quote(word) for word in program)
        options.append(f"--problem={PROGRAM}{' '.join(quoted)}")
    is_program = any(word.startswith((f"--problem={PROGRAM}", PROGRAM)) for word in options)
    if is_program and has_framework and not any(word.startswith("--framework") for word in options):
        options.append("--framework=program")
    return options


def expanded(words: Sequence[str], *, has_framework: bool = True) -> list[str]:
    """Return the words with the options that the first target among them stands for, or a program after `--`.

    That is the problem, the function if it names one, and the frameworks that the file is for, if the command has such
    an option. What is given as an option stays. Raises `UserError` if the file cannot be read.
    """
    words = _with_program(words, has_framework)
    for target in targets(words)[:1]:
        name, functions = _parted(target)
        kind, options = registry.problem(name), [f"--problem={name}"]
        given = {word.partition("=")[0] for word in words}
        if functions:
            options.append(f"--{FUNCTION}={functions}")
        if has_framework and "--framework" not in given:
            options.append(f"--framework={','.join(kind.frameworks or ())}")
        at = list(words).index(target)
        return [*words[:at], *options, *words[at + 1 :]]
    return list(words)
