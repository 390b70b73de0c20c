"""Any program: its name as a problem is its command line, `program:./stream {n}`, where `{n}` is an option `--n`.

`figures` has what a program tells, found as `parsing` says; `execution` executes it as a whole, and `stepwise` step by
step.
"""

import hashlib
import os
import re
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, make_dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from msgspec import Meta

from benchmarker import PROGRAM, Cost, Data, Mode, Problem, Source, UserError, Work, hookimpl
from benchmarker_problems.program.figures import declared
from benchmarker_problems.program.parsing import Function, refuse_sanity

SCRATCH = "scratch"
"""The place that stands for a folder of a trial's own."""
PLACE = re.compile(r"(?<!\$)\{(\{[^{}]*\}|[A-Za-z_][A-Za-z0-9_]*)\}")
"""A place for a value, `{n}`, which `${n}` of a shell is not; of `{{n}}`, the inner braces are the program's."""
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
OF_LINES = {"lines": True}


@dataclass(frozen=True)
class Program(Problem):
    """A command line; `text` is as the user wrote it, and `values` are those of its places."""

    summary = "a program, executed once in a trial"
    cost_formula = "none: what a program computes is not known"
    frameworks = ("program",)
    text: ClassVar[str]
    places: ClassVar[tuple[str, ...]]
    shell: Annotated[bool, Meta(description="let a shell (sh) execute the command line")] = False
    stepwise: Annotated[
        bool, Meta(description="let the program run as many steps as it is asked for, see docs/programs.md")
    ] = False
    sanity: Annotated[
        str,
        Meta(
            description="a pattern that the output must match, or the trial has failed; or a function, FILE.py:NAME",
            extra=OF_LINES,
        ),
    ] = ""
    figure: Annotated[
        str,
        Meta(
            description="a figure in the output, NAME=PATTERN or NAME[UNIT,lower|higher,last|mean|all]=PATTERN, of "
            "which the first group is the number; or instead of the pattern a function, FILE.py:NAME",
            extra=OF_LINES,
        ),
    ] = ""
    env: Annotated[
        str,
        Meta(description="a variable of its environment, NAME=VALUE, or NAME to take it away", extra=OF_LINES),
    ] = ""
    workdir: Annotated[str, Meta(description="the folder in which the program is executed")] = ""
    prepare: Annotated[
        str, Meta(description="a command line that a shell executes before the program, untimed", extra=OF_LINES)
    ] = ""
    cleanup: Annotated[
        str, Meta(description="a command line that a shell executes at the end, untimed", extra=OF_LINES)
    ] = ""

    def __post_init__(self) -> None:
        """Take numbers among the values as numbers: `1000` of a command line is 1000, `4K` and `007` are text."""
        for place in self.places:
            value = getattr(self, place)
            for kind in (int, float):
                if isinstance(value, str) and re.fullmatch(r"-?\d{1,15}(\.\d{1,15})?", value):
                    number = kind(value) if kind is float or "." not in value else value
                    value = number if str(number) == value else value
            object.__setattr__(self, place, value)

    def title(self, mode: Mode) -> str:
        """Return the command line."""
        return self.filled(self.text)

    def filled(self, text: str, scratch: str = "", *, quoted: bool = False) -> str:
        """Return a text with the values in their places, each `quoted` for a shell if it is one's."""
        values = {place: str(getattr(self, place)) for place in self.places}
        values |= {SCRATCH: scratch} if scratch else {}

        def value(found: re.Match[str]) -> str:
            name = found[1]
            if name.startswith("{") or name not in values:
                return name if name.startswith("{") else found[0]
            return shlex.quote(values[name]) if quoted else values[name]

        return PLACE.sub(value, text)

    def words(self, scratch: str = "") -> list[str]:
        """Return the words to execute; a value stays in its word. Raises `UserError` if there is no such program.

        The program is found from the folder of this process, whatever folder it is executed in.
        """
        if self.shell:
            return [*_found(["sh"]), "-c", self.filled(self.text, scratch, quoted=True)]
        return _found([self.filled(word, scratch) for word in shlex.split(self.text)])

    def refuse(self, mode: Mode) -> None:
        """Raise `UserError` if a value is missing, a pattern is wrong, or there is no such program."""
        for place in self.places:
            if getattr(self, place) == "":
                option = f"--{place.replace('_', '-')}=VALUE"
                raise UserError(f"{self.text}: {{{place}}} has no value; give {option}, or double the braces")
        for line in filter(None, self.sanity.splitlines()):
            refuse_sanity(line)
        for figure in declared(self.figure):
            if isinstance(figure.finder, Function):
                figure.finder.refuse()
        for option in ("prepare", "cleanup", "env", "workdir"):
            names = {name for name in PLACE.findall(getattr(self, option)) if not name.startswith("{")}
            if unknown := sorted(names - {*self.places, SCRATCH}):
                raise UserError(f"--{option}: the command line of the program has no {{{unknown[0]}}}")
        for line in filter(None, self.env.splitlines()):
            if not VARIABLE.fullmatch(line.partition("=")[0]):
                raise UserError(f"--env={line}: write NAME=VALUE, as in OMP_NUM_THREADS=2")
        folder = self.filled(self.workdir)
        if folder and f"{{{SCRATCH}}}" not in folder and not Path(folder).is_dir():
            raise UserError(f"--workdir={folder}: no such folder")
        self.words()

    def environment(self, around: Mapping[str, str], scratch: str) -> dict[str, str]:
        """Return the environment of the program, and of what comes before and after it: that `around`, as changed."""
        changed = {**around, "BENCHMARKER_SCRATCH": scratch}
        for line in filter(None, self.env.splitlines()):
            name, is_set, value = self.filled(line, scratch).partition("=")
            changed.pop(name, None)
            changed |= {name: value} if is_set else {}
        return changed

    def scopes(self, mode: Mode) -> Mapping[str, int]:
        """Return the program as the only part."""
        return {"program": 1}

    def cost(self, mode: Mode, precision: str) -> Cost:
        """Raise `UserError`: the work is not known."""
        raise UserError(f"the work of {self.text} is not known")

    def parts(self, mode: Mode, precision: str) -> Mapping[str, Work]:
        """Return nothing: the work is not known."""
        return {}

    def data(self, precision: str, rng: np.random.Generator, batches: int) -> Data:
        """Return nothing: a program has its own."""
        return Data({}, ({},))

    def small(self) -> Self:
        """Return the same: there is no smaller program."""
        return self


def _found(words: list[str]) -> list[str]:
    """Return the words with the path of the program; raises `UserError` if it cannot be executed."""
    path = shutil.which(words[0])
    if path is None:
        what = "is not executable" if Path(words[0]).is_file() else "no such program"
        raise UserError(f"{words[0]}: {what}" + ("; try chmod +x" if Path(words[0]).is_file() else ""))
    return [str(Path(path).absolute()), *words[1:]]


@hookimpl
def define_problem(name: str, path: Path | None) -> type[Problem]:
    """Return the problem of a command line, whose places are options; raises `UserError` if it cannot be read."""
    if not name.startswith(PROGRAM):
        raise UserError(f"{name}: a program is named {PROGRAM}{shlex.quote(f'./{name}')}")
    text = name.removeprefix(PROGRAM).strip()
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UserError(f"{text}: {str(error).lower()}") from error
    if not words:
        raise UserError("no program is named; write it after --, as in: run -- ./stream 100")
    found = dict.fromkeys(name for name in PLACE.findall(text) if not name.startswith("{"))
    places = tuple(name for name in found if name != SCRATCH)
    if taken := [place for place in places if hasattr(Program, place)]:
        raise UserError(f"{text}: {{{taken[0]}}} cannot be an option; use another name")
    options: list[Any] = [
        (place, Annotated[int | float | str, Meta(description=f"what stands for {{{place}}}")], field(default=""))
        for place in places
    ]
    namespace = {"text": text, "places": places, "source": Source(text, _digest(words))}
    return make_dataclass("Program", options, bases=(Program,), frozen=True, namespace=namespace)


def _digest(words: list[str]) -> str:
    """Return the digest of what is executed; empty if nothing is found, as where a name has a place.

    That is the first word, and whatever else is an executable with a path, as after `mpirun`, or a script in Python.
    """
    scripts = [word for word in words[1:] if word.endswith(".py") or ("/" in word and os.access(word, os.X_OK))]
    found = [path for word in (words[0], *scripts) if (path := shutil.which(word) or word) and Path(path).is_file()]
    digests = [_digest_of(path, Path(path).stat().st_mtime_ns) for path in found]
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest() * bool(digests)


@lru_cache
def _digest_of(path: str, changed_ns: int) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@hookimpl
def write_example(name: str, framework: str) -> str | None:
    """Return None: a program is written elsewhere."""
    return None
