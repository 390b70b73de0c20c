"""Who hears how a run goes on: nobody, a function of lines, or a listener of all events."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from benchmarker.formatting import clean

if TYPE_CHECKING:
    from benchmarker.api.case import Case
    from benchmarker.records.record import Record
    from benchmarker.running.context import Listener
    from benchmarker.worker.protocol import Event

Progress: TypeAlias = "bool | Callable[[str], None] | Listener | None"
"""True for lines on standard error, a function that gets each line, or what hears all events."""


class Lines:
    """Gives each message, and a line for each process that has ended, to a function."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._title = ""

    def say(self, text: str) -> None:
        """Give a message."""
        self._write(text)

    def begin(self, title: str, case: Case, left_s: float | None) -> None:
        """Note what begins."""
        self._title = title

    def on_event(self, event: Event) -> None:
        """Ignore what happens within a process."""

    def end(self, records: Sequence[Record]) -> None:
        """Give a line."""
        self.say(f"{self._title}: {outcome(records)[0]}")


def listener_of(progress: Progress) -> Listener:
    """Return what hears of a run."""
    if not progress:
        return Lines(lambda _: None)
    if progress is True:
        return Lines(lambda line: sys.stderr.write(f"{clean(line)}\n"))
    return Lines(progress) if callable(progress) else progress


def outcome(records: Sequence[Record]) -> tuple[str, bool]:
    """Return how a process ended, in words, and whether it failed."""
    errors = [record.error for record in records if record.error and record.error.kind != "partner"]
    others_s = sum(record.harness.stages_s.get("profile", 0.0) for record in records[1:])
    seconds = f"{records[0].harness.wall_s + others_s:.1f} s"  # a duet is one process, but two profiles
    if errors and errors[0].kind == "skipped":
        return f"SKIPPED: {errors[0].message}", True
    if errors:
        return f"FAILED in {errors[0].stage} after {seconds}: {errors[0].message}", True
    return f"done in {seconds}", False
