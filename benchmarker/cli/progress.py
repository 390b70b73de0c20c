"""What a run shows while it runs: a live line on a terminal, plain lines in a pipe; always on standard error."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from rich.live import Live
from rich.text import Text

from benchmarker.cli.output import clean, console, si

if TYPE_CHECKING:
    from types import TracebackType

    from benchmarker.api import Case
    from benchmarker.conversation import Event
    from benchmarker.record import Record


def working(text: str) -> AbstractContextManager[object]:
    """Show on a terminal that something goes on, until it has ended; a pipe is told nothing."""
    shown = console(stderr=True)
    return shown.status(Text(clean(text))) if shown.is_terminal else nullcontext()


PLAIN_EVERY_S = 10.0
"""In a pipe, progress within a stage is told no oftener."""


class Progress:
    """Tells of each trial as its worker does. It draws only when it hears something: between, it costs nothing."""

    def __init__(self) -> None:
        self._console = console(stderr=True)
        self._live = (
            Live(console=self._console, auto_refresh=False, transient=True) if self._console.is_terminal else None
        )
        self._title = ""
        self._stage = ""
        self._blocks = 0
        self._preheat = False
        self._told = 0.0

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
        """A line that stays."""
        self._console.print(Text(clean(text)))

    def begin(self, title: str, case: Case) -> None:
        """A trial begins."""
        self._title, self._stage = title, "start"
        self._blocks, self._preheat = case.measuring.blocks, case.measuring.preheat

    def hear(self, event: Event) -> None:
        """Show an event of the worker."""
        if "stage" in event:
            self._stage, self._told = event["stage"], time.monotonic()
            self._show("")
        elif "progress" in event:
            done, step_s = event["progress"]
            of = f" of {self._blocks}" if self._stage == "timed" else ""
            counted = "block" if self._stage == "timed" else "window" if self._preheat else "step"
            self._show(f", {counted} {done}{of}, {si(step_s, 's')} a step")

    def end(self, record: Record) -> None:
        """A trial has ended: one line that stays."""
        outcome = "done" if record.error is None else f"FAILED in {record.error.stage}: {record.error.message}"
        self.say(f"{self._title}: {outcome} in {record.harness.wall_s:.1f} s")

    def _show(self, detail: str) -> None:
        text = clean(f"{self._title}: {self._stage}{detail}")
        if self._live:
            self._live.update(Text(text), refresh=True)
        elif not detail or time.monotonic() - self._told >= PLAIN_EVERY_S:
            self._told = time.monotonic()
            self._console.print(Text(text))
