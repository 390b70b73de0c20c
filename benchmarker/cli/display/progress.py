"""Progress of a run: a live line on a terminal, plain lines in a pipe; always on standard error, more or less of it."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Self, TypeVar

import click
from rich.live import Live
from rich.text import Text

from benchmarker.api.errors import UserError
from benchmarker.cli.display.output import console
from benchmarker.formatting import clean, duration_text, si
from benchmarker.library.progress import outcome
from benchmarker.tables.shortening import shortened
from benchmarker.worker.protocol import StageBegan, StageEnded, StepsDone

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from benchmarker.api.case import Case
    from benchmarker.records.record import Record
    from benchmarker.worker.protocol import Event


_F = TypeVar("_F", bound="Callable[..., Any]")

PLAIN_EVERY_S = 10.0
"""Minimum time between progress lines within a process, in a pipe, unless --verbose asks for all."""


def progress_options(function: _F, verbose_help: str = "Print each stage and how long it took.") -> _F:
    """Add `--verbose` and `--quiet` to a command; what it calls asks `verbose` and `quiet`."""
    for option in (
        click.option(
            "-q",
            "--quiet",
            is_flag=True,
            expose_value=False,
            callback=_remember,
            help="Print no progress, only failures and notes.",
        ),
        click.option(
            "-v",
            "--verbose",
            is_flag=True,
            expose_value=False,
            callback=_remember,
            help=verbose_help,
        ),
    ):
        function = option(function)
    return function


def _remember(context: click.Context, option: click.Parameter, value: bool) -> None:
    if value and context.meta.setdefault(__name__, option.name) != option.name:
        raise UserError("--verbose and --quiet exclude each other; leave one out")


def _requested() -> str | None:
    context = click.get_current_context(silent=True)
    return context.meta.get(__name__) if context else None


def verbose() -> bool:
    """Return whether the command was asked for more progress."""
    return _requested() == "verbose"


def quiet() -> bool:
    """Return whether the command was asked for no progress."""
    return _requested() == "quiet"


def working(text: str) -> AbstractContextManager[object]:
    """Show a status line on a terminal while something is in progress; with --verbose print it, with --quiet do not."""
    shown = console(stderr=True)
    if verbose():
        shown.print(Text(clean(text)))
    fitting = shortened(clean(text), shown.width - 2)  # a line that wraps would not be removed
    return shown.status(Text(fitting)) if shown.is_terminal and not quiet() else nullcontext()


class Line:
    """A line on a terminal that is replaced as work goes on; in a pipe, a plain line now and then."""

    def __init__(self) -> None:
        self._console = console(stderr=True)
        self._verbose, self._quiet = verbose(), quiet()
        shown = self._console.is_terminal and not self._quiet
        self._live = Live(console=self._console, auto_refresh=False, transient=True) if shown else None
        self._told = time.monotonic()

    def __enter__(self) -> Self:
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

    def show(self, text: str) -> None:
        """Replace the line."""
        if self._live:
            self._live.update(Text(clean(text)), refresh=True)
        elif self._verbose or (not self._quiet and time.monotonic() - self._told >= PLAIN_EVERY_S):
            self._told = time.monotonic()
            self.say(text)


class Progress(Line):
    """Shows each trial as its worker reports progress. It draws only on events, so it costs nothing in between."""

    def __init__(self) -> None:
        super().__init__()
        self._title = ""
        self._stage = ""
        self._left = ""
        self._blocks = 0
        self._preheat = False

    def begin(self, title: str, case: Case, left_s: float | None) -> None:
        """Note that a process begins."""
        self._title, self._stage = title, "start"
        self._left = "" if left_s is None else f" (about {duration_text(left_s)} left)"
        self._blocks, self._preheat = case.measuring.blocks, case.measuring.preheat

    def on_event(self, event: Event) -> None:
        """Show an event of the worker."""
        if isinstance(event, StageBegan):
            self._stage = self._named(event.stage)
            self._show("")
        elif isinstance(event, StageEnded) and self._verbose:
            self.say(f"{self._title}: {self._named(event.stage)} took {event.seconds:.2f} s")
        elif isinstance(event, StepsDone):
            done, step_s = event.done, event.step_s
            of = f" of {self._blocks}" if self._stage == "timed" and done <= self._blocks else ""
            steps = ("window" if self._preheat else "step", "step")
            counted, per = {"timed": ("block", "step"), "tokens": ("request", "token")}.get(self._stage, steps)
            self._show(f", {counted} {done}{of}, {si(step_s, 's')} per {per}")

    def end(self, records: Sequence[Record]) -> None:
        """Print one permanent line for a process that has ended, with --quiet only if it failed."""
        text, is_failed = outcome(records)
        if is_failed or not self._quiet:
            self.say(f"{self._title}: {text}")

    def _named(self, stage: str) -> str:
        return "warm-up" if stage == "preheat" and not self._preheat else stage

    def _show(self, detail: str) -> None:
        self.show(f"{self._title}{self._left}: {self._stage}{detail}")
