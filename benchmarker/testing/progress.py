"""Progress of perf tests on a terminal: what runs, beside the line of pytest; nothing in a pipe."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Self

from benchmarker.formatting import duration_text
from benchmarker.library.progress import Lines

if TYPE_CHECKING:
    import pytest

    from benchmarker.api.case import Case


class Beside(Lines):
    """A note at the end of the line that pytest writes, in ASCII; it is gone when the context ends.

    It changes only between trials, so it costs them nothing.
    """

    def __init__(self, config: pytest.Config) -> None:
        super().__init__(lambda _: None)
        reporter = config.pluginmanager.getplugin("terminalreporter")
        self._writer = config.get_terminal_writer() if reporter and reporter.isatty else None
        self._capture = config.pluginmanager.getplugin("capturemanager")
        self._shown = self._trials = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.show("")

    def show(self, note: str) -> None:
        """Replace the note, as far as the line has room."""
        if self._writer:
            room = self._writer.fullwidth - self._writer.width_of_current_line - 1
            text = f" {note}"[: max(0, room)] if note else ""
            erased = text.ljust(self._shown)
            with self._capture.global_and_fixture_disabled() if self._capture else nullcontext():
                self._writer.write_raw(erased + "\b" * len(erased), flush=True)
            self._shown = len(text)

    def begin(self, title: str, case: Case, left_s: float | None) -> None:
        """Show that a trial begins, and how long all those of its test take at most."""
        self._trials += 1
        self.show(f"trial {self._trials}" + (f", about {duration_text(left_s)} left" if left_s else ""))
