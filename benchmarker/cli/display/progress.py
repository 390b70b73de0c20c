"""Progress of a run: a live line on a terminal, plain lines in a pipe; always on standard error."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from rich.live import Live
from rich.text import Text

from benchmarker.cli.display.output import console
from benchmarker.formatting import clean, duration_text, si

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from benchmarker.api.case import Case
    from benchmarker.records.record import Record
    from benchmarker.worker.launch import Event


def working(text: str) -> AbstractContextManager[object]:
    """Show a status line on a terminal while something is in progress; print nothing in a pipe."""
    shown = console(stderr=True)
    return shown.status(Text(clean(text))) if shown.is_terminal else nullcontext()


PLAIN_EVERY_S = 10.0
"""Minimum time between progress lines within a process, in a pipe."""


class Progress:
    """Shows each trial as its worker reports progress. It draws only on events, so it costs nothing in between.

    `again` is appended to the message about an interrupt: how to continue.
    """

    def __init__(self, again: str = "; continue with the same command and --resume") -> None:
        self.again = again
        self._console = console(stderr=True)
        self._live = (
            Live(console=self._console, auto_refresh=False, transient=True) if self._console.is_terminal else None
        )
        self._title = ""
        self._stage = ""
        self._left = ""
        self._blocks = 0
        self._preheat = False
        self._told = time.monotonic()

    def __enter__(self) -> Progress:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def say(self, text: str) -> None:
        """Print a permanent line."""
        self._console.print(Text(clean(text)))

    def begin(self, title: str, case: Case, left_s: float | None) -> None:
        """Note that a process begins."""
        self._title, self._stage = title, "start"
        self._left = "" if left_s is None else f" (about {duration_text(left_s)} left)"
        self._blocks, self._preheat = case.measuring.blocks, case.measuring.preheat

    def hear(self, event: Event) -> None:
        """Show an event of the worker."""
        if "stage" in event:
            self._stage = event["stage"]
            if self._stage == "preheat" and not self._preheat:
                self._stage = "warm-up"
            self._show("")
        elif "progress" in event:
            done, step_s = event["progress"]
            of = f" of {self._blocks}" if self._stage == "timed" and done <= self._blocks else ""
            counted = "block" if self._stage == "timed" else "window" if self._preheat else "step"
            self._show(f", {counted} {done}{of}, {si(step_s, 's')} per step")

    def end(self, records: Sequence[Record]) -> None:
        """Print one permanent line for a process that has ended."""
        errors = [record.error for record in records if record.error and record.error.kind != "partner"]
        outcome = f"done in {records[0].harness.wall_s:.1f} s"
        if errors and errors[0].kind == "skipped":
            outcome = f"SKIPPED: {errors[0].message}"
        elif errors:
            outcome = f"FAILED in {errors[0].stage} after {records[0].harness.wall_s:.1f} s: {errors[0].message}"
        self.say(f"{self._title}: {outcome}")

    def _show(self, detail: str) -> None:
        text = clean(f"{self._title}{self._left}: {self._stage}{detail}")
        if self._live:
            self._live.update(Text(text), refresh=True)
        elif time.monotonic() - self._told >= PLAIN_EVERY_S:
            self._told = time.monotonic()
            self._console.print(Text(text))
