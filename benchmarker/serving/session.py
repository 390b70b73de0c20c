"""A load in the making: its steps are stored as they end, and also if they are interrupted."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from benchmarker.formatting import part
from benchmarker.records import load as loads
from benchmarker.records.load import Load, RequestOutcome, Step
from benchmarker.records.store import uncollected
from benchmarker.serving.arrivals import Request
from benchmarker.serving.latency import Figures, is_overload
from benchmarker.serving.open_loop import Overload

Send = Callable[[Sequence["Request"], Callable[[RequestOutcome], None]], None]
"""Sends requests at their times, and calls the function with each outcome; returns when all are known."""
SHOWN_EVERY_S = 1.0
"""Least time between two lines of progress: drawing one delays what arrives meanwhile."""


class Session:
    """Sends the requests of step after step; `load` has the steps so far, and `path` is where they are stored."""

    def __init__(self, load: Load, results: Path, send: Send, show: Callable[[str], None]) -> None:
        self.load = load
        self.path: Path | None = None
        self._results = results
        self._send = send
        self._show = show

    def step(self, rate_per_s: float | None, seconds: float, requests: Sequence[Request]) -> Figures:
        """Send the requests that arrive within `seconds`, and store their outcomes; return their figures.

        It ends as soon as so many have timed out that the server is overloaded. If it is interrupted, the outcomes so
        far are stored. Raises `UserError` if they cannot be stored.
        """
        outcomes: list[RequestOutcome] = []
        timed_out = 0
        shown = time.monotonic()

        def done(outcome: RequestOutcome) -> None:
            nonlocal shown, timed_out
            outcomes.append(outcome)
            if time.monotonic() - shown >= SHOWN_EVERY_S:
                shown = time.monotonic()
                reached = f"{min(seconds, _end_s(outcome)):.0f} of {seconds:.0f} s"
                self._show(f"{named(rate_per_s)}: {reached}, {_done(outcomes, requests)}")
            timed_out += outcome.failure is not None and outcome.failure.kind == "timeout"
            if is_overload(timed_out, len(requests), self.load.share):
                raise Overload

        try:
            with uncollected():
                self._send(requests, done)
        finally:
            if outcomes and len(outcomes) < len(requests):
                seconds = min(seconds, max(map(_end_s, outcomes)))
            if outcomes:
                step = Step(rate_per_s=rate_per_s, seconds=seconds, planned=len(requests), outcomes=outcomes)
                self.load = msgspec.structs.replace(self.load, steps=[*self.load.steps, step])
                self.path = loads.write(self._results, self.load)
        return Figures(step, self.load.slo, self.load.share)


def named(rate_per_s: float | None) -> str:
    """Return a rate in words."""
    return "trace" if rate_per_s is None else f"{rate_per_s:.4g} requests/s"


def _end_s(outcome: RequestOutcome) -> float:
    return max([outcome.sent_s, *outcome.chunks_s[-1:]])


def _done(outcomes: Sequence[RequestOutcome], requests: Sequence[Request]) -> str:
    failed = sum(outcome.failure is not None for outcome in outcomes)
    return f"{part(len(outcomes), len(requests), 'request')} done" + (f", {failed} failed" if failed else "")
