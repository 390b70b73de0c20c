"""What a run that was submitted to a launcher has beside its records: the job, and each start of it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Struct

from benchmarker.api.errors import UserError
from benchmarker.api.fields import NULL_IS_AN_ANSWER, Positive
from benchmarker.api.launcher import Allocation
from benchmarker.files.atomic import Fault, decode, encode, write
from benchmarker.formatting import some
from benchmarker.records import store

SCRIPT = "job.sh"
LOG = "job.log"
_LISTED = 3
"""Most differences of software that are listed."""


class Installed(Struct, frozen=True, forbid_unknown_fields=True):
    """The software that a job is to run with: Python, the commit of this project, and every distribution's version."""

    python: str
    commit: Annotated[str | None, NULL_IS_AN_ANSWER]
    distributions: dict[str, str]


class Job(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A run as it was submitted; `number` is the launcher's, null until the launcher has accepted it.

    `plan` is the name of the plan file without its ending, which is the name of the suite that it describes. Of several
    jobs of one plan, `part` says which of its cases are those of this one: all that state so many nodes.
    """

    launcher: str
    number: Annotated[str | None, NULL_IS_AN_ANSWER] = None
    options: dict[str, str]
    nodes: Positive = 1
    plan: str
    part: Annotated[Positive | None, NULL_IS_AN_ANSWER] = None
    submitted_at: str
    installed: Installed


class Attempt(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A start of the job: where and when it began, and how it ended, null if nothing could be written any more."""

    host: str
    allocation: Annotated[Allocation | None, NULL_IS_AN_ANSWER]
    started_at: str
    ended_at: Annotated[str | None, NULL_IS_AN_ANSWER] = None
    ending: Annotated[
        Literal["done", "preempted", "time limit", "node failure", "cancelled", "error"] | None, NULL_IS_AN_ANSWER
    ] = None
    message: str = ""

    @property
    def where(self) -> str:
        """The nodes, or the host outside of an allocation."""
        return ",".join(self.allocation.nodes) if self.allocation else self.host


def job_of(path: Path) -> Job | None:
    """Return the job of the run in a folder, None if it was not submitted; raises `UserError` if it cannot be read."""
    if not (path / store.JOB).exists():
        return None
    job = decode(path / store.JOB, lambda content: msgspec.json.decode(content, type=Job))
    if isinstance(job, Fault):
        raise UserError(str(job))
    return job


def save_job(path: Path, job: Job) -> None:
    """Write the job of the run in a folder; raises OSError."""
    write(path / store.JOB, encode(job))


def attempts_of(path: Path) -> list[Attempt]:
    """Return the starts of the job of a run, in order; raises `UserError` if one cannot be read."""
    attempts: list[Attempt] = []
    while (file := store.attempt_path(path, len(attempts))).exists():
        attempt = decode(file, lambda content: msgspec.json.decode(content, type=Attempt))
        if isinstance(attempt, Fault):
            raise UserError(str(attempt))
        attempts.append(attempt)
    return attempts


def differences(before: Installed, now: Installed) -> str:
    """Return what software differs from what was there before, if any: `torch 2.9.0 -> 2.8.0, jax 0.9 -> none`."""
    sides: list[Mapping[str, str | None]] = [
        {"Python": each.python, "commit": each.commit, **each.distributions} for each in (before, now)
    ]
    changed = [
        f"{name} {sides[0].get(name) or 'none'} → {sides[1].get(name) or 'none'}"
        for name in dict.fromkeys([*sides[0], *sides[1]])
        if sides[0].get(name) != sides[1].get(name)
    ]
    return some(changed, _LISTED)
