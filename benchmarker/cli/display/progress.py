"""Progress of a run: a live line on a terminal, plain lines in a pipe; always on standard error, more or less of it."""

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Self, TypeVar

import click
import numpy as np
from rich.live import Live
from rich.text import Text

from benchmarker.api.case import Case
from benchmarker.api.errors import UserError
from benchmarker.cli.display.output import console
from benchmarker.display.drawings import marks_of, series
from benchmarker.formatting import clean, duration_text, shortened, si
from benchmarker.library.progress import outcome
from benchmarker.records.record import Record
from benchmarker.records.step_times import step_times
from benchmarker.worker.protocol import Event, StageBegan, StageEnded, StepsDone

_F = TypeVar("_F", bound="Callable[..., Any]")

PLAIN_EVERY_S = 10.0
"""Minimum time between progress lines within a process, in a pipe, unless --verbose asks for all."""
REDRAW_S = 1.0
"""Time between drawings of the live line while a stage of WAITING lasts."""
BARS = 16
"""Most step times that a line draws, and half as many where it is narrow."""
LEAST_TITLE = 12
"""Characters to which a title is shortened where not even the least important things beside it have room."""
WAITING = {
    "start": "starting a process",
    "open": "opening the framework",
    "check": "checking results",
    "build": "building",
    "compile": "compiling",
    "verify": "checking the last step",
    "reading the profile": "reading the profile",
}
"""Stages in which no block is timed, and what is waited for in each: only there the line shows how time passes."""
TIMING = {
    "rest": "waiting for the meters",
    "preheat": "preheating",
    "warm-up": "warming up",
    "timed": "timing",
    "tokens": "timing tokens",
    "device": "timing by the device's clock",
    "local": "timing each device alone",
    "profile": "profiling",
}
"""The other stages: there the line is drawn only when the worker reports, between blocks and at most once a second."""


def progress_options(function: _F, verbose_help: str = "Print each stage and how long it took.") -> _F:
    """Add `--verbose` and `--quiet` to a command; what it calls asks `verbose` and `quiet`."""
    flag = partial(click.option, is_flag=True, expose_value=False, callback=_remember)
    quiet_help = "Print no progress, only failures and notes."
    return flag("-v", "--verbose", help=verbose_help)(flag("-q", "--quiet", help=quiet_help)(function))


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
        shown = self._console.is_terminal and not self._console.is_dumb_terminal and not self._quiet
        self._live = Live(console=self._console, auto_refresh=False, transient=True) if shown else None
        self._told = time.monotonic()

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
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
    """Shows each trial as its worker reports progress: in which stage it is, recent step times, and the time left.

    While blocks are timed it draws only on events, so it costs nothing in between.
    """

    def __init__(self) -> None:
        super().__init__()
        self._title = ""
        self._stage = ""
        self._left_s: float | None = None
        self._blocks = 0
        self._preheat = False
        self._begun = self._stage_begun = time.monotonic()
        self._counted = self._pace = ""
        self._recent: dict[int | None, deque[float]] = defaultdict(lambda: deque(maxlen=BARS))
        self._of: int | None = None
        self._marks = marks_of(self._console.file)
        self._waits, self._over = threading.Event(), threading.Event()
        self._lock = threading.RLock()  # what is shown changes in one thread, and is drawn also by another

    def __enter__(self) -> Self:
        super().__enter__()
        if self._live:
            threading.Thread(target=self._redraw, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._over.set()
            self._waits.set()
            super().__exit__()

    def begin(self, title: str, case: Case, left_s: float | None) -> None:
        """Note that a process begins."""
        with self._lock:
            self._title, self._left_s = clean(title), left_s
            self._blocks, self._preheat = case.measuring.blocks, case.measuring.preheat
            self._begun = time.monotonic()
            self._enter("start")

    def on_event(self, event: Event) -> None:
        """Show an event of the worker."""
        if isinstance(event, StageBegan):
            self._enter(event.stage)
            if not self._live:
                self._show_plain("")
        elif isinstance(event, StageEnded) and self._verbose:
            self.say(f"{self._title}: {self._named(event.stage)} took {event.seconds:.2f} s")
        elif isinstance(event, StepsDone):
            done, step_s = event.done, event.step_s
            of = f" of {self._blocks}" if self._stage == "timed" and done <= self._blocks else ""
            steps = ("window" if self._preheat else "step", "step")
            counted, per = {"timed": ("block", "step"), "tokens": ("request", "token")}.get(self._stage, steps)
            with self._lock:
                self._counted, self._pace = f"{counted} {done}{of}", f"{si(step_s, 's')} per {per}"
                self._of = event.of
                self._recent[event.of].append(step_s)
                if self._live:
                    self._draw()
            if not self._live:
                self._show_plain(f", {self._counted}, {self._pace}")

    def end(self, records: Sequence[Record]) -> None:
        """Print one permanent line for a process that has ended, with --quiet only if it failed."""
        self._rest()
        text, is_failed = outcome(records)
        if is_failed or not self._quiet:
            line = f"{self._title}: {text}"
            self.say(line + (self._paces(records, len(line)) if self._live and not is_failed else ""))

    def _rest(self) -> None:
        """Empty the live line: nothing runs."""
        self._waits.clear()
        if self._live:
            self._live.update(Text(""), refresh=True)

    def _enter(self, stage: str) -> None:
        """Note that a stage begins, and show it on a terminal."""
        with self._lock:
            self._stage, self._stage_begun = self._named(stage), time.monotonic()
            self._counted = self._pace = ""
            self._recent.clear()
            if self._live:
                (self._waits.set if stage in WAITING else self._waits.clear)()
                self._draw()

    def _named(self, stage: str) -> str:
        return "warm-up" if stage == "preheat" and not self._preheat else stage

    def _show_plain(self, detail: str) -> None:
        left = "" if self._left_s is None else f" (about {duration_text(self._left_s)} left)"
        self.show(f"{self._title}{left}: {self._stage}{detail}")

    def _redraw(self) -> None:
        """Draw the line once a second while a stage lasts in which no block is timed; sleep otherwise."""
        while self._waits.wait() and not self._over.wait(REDRAW_S):
            with self._lock:
                if self._waits.is_set() and not self._over.is_set():
                    self._draw()

    def _draw(self) -> None:
        assert self._live is not None
        width = self._console.width - 1
        line = Text(clean(self._fitting(width)))
        line.truncate(width, overflow="ellipsis")
        self._live.update(line, refresh=True)

    def _fitting(self, width: int) -> str:
        """Return as much as fits a width: what is waited for, bars of recent step times, the last one, the time left.

        What does not fit is left out, the least important first; where nothing else helps, the title is shortened.
        """
        waited, title = self._waited(), len(self._title)
        recent = list(self._recent[self._of]) if len(self._recent[self._of]) > 1 else []
        bars, few = (series(recent[-most:], most, self._marks) for most in (BARS, BARS // 2))
        left_s = 0.0 if self._left_s is None else self._left_s - (time.monotonic() - self._begun)
        left = f"{duration_text(left_s)} left" if left_s >= 1 else ""
        forms = [
            ", ".join(filter(None, [" ".join(filter(None, [waited, *drawn])), after]))
            for drawn, after in (
                ((bars, self._pace), left and f"about {left}"),
                ((few, self._pace.replace(" per ", "/")), left),
                ((few,), left),
                ((few,), ""),
            )
        ]
        least = min(title, LEAST_TITLE)
        whole, cut = [(form, title) for form in forms], [(form, least) for form in forms]
        tried = (*whole[:3], cut[2], whole[3], cut[3])
        rest = next((form for form, characters in tried if len(form) + 2 + characters <= width), waited)
        return f"{shortened(self._title, max(LEAST_TITLE, width - len(rest) - 2))}: {rest}"

    def _waited(self) -> str:
        """Return what is waited for: a stage and how long it has lasted, or how far it is."""
        if self._stage == "timed" and self._counted:
            return self._counted
        words = WAITING.get(self._stage) or TIMING.get(self._stage, self._stage)
        lasted_s = time.monotonic() - self._stage_begun
        lasted = duration_text(lasted_s) if self._stage in WAITING and lasted_s >= REDRAW_S else ""
        return ", ".join(filter(None, [words, self._counted, lasted]))

    def _paces(self, records: Sequence[Record], used: int) -> str:
        """Return the median step time of each record and bars of all its blocks, as far as the line has room."""
        times = [step_times(record) for record in records if record.blocks]
        medians = [f"{si(float(np.median(each)), 's')} per step" for each in times]
        room = self._console.width - used - sum(len(text) + len(", ") + 1 for text in medians)
        bars = min(BARS, room // len(times)) if times else 0
        if bars < BARS // 2:
            return ""
        return "".join(f", {text} {series(each, bars, self._marks)}" for text, each in zip(medians, times, strict=True))
