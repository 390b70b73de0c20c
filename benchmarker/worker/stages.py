"""The stages of a worker's task, as the parent is told of them."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from benchmarker.worker.protocol import Address

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarker.worker.protocol import Events

TELL_EVERY_S = 1.0
"""Shortest time between progress reports: sending and showing them takes processor time from the measurement."""


class Stages:
    """Reports to the parent when each stage begins and ends, and events of the case whose number is `of`."""

    def __init__(self, events: Events) -> None:
        self.events = events
        self.of = 0
        self.current = "open"
        self._last_told = 0.0

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Return the context of a stage."""
        self.current = name
        self._last_told = 0.0
        self.events.send(stage=name)
        start = time.perf_counter()
        yield
        self.events.send(took=[name, time.perf_counter() - start])

    def send(self, **event: Any) -> None:
        """Send an event of the case."""
        self.events.send(of=self.of, **event)

    def tell(self, done: int, step_s: float) -> None:
        """Report progress, unless that was done just now."""
        now = time.perf_counter()
        if now - self._last_told >= TELL_EVERY_S:
            self._last_told = now
            self.send(progress=[done, step_s])

    def publish(self, host: str, port: int, token: str) -> None:
        """Send the address of this process, rank 0, for the others."""
        self.events.send(address=Address(host, port, token))

    def fail(self, kind: str, message: str, lost_peer: bool = False) -> None:
        """Report a failure, which may be that another rank was lost."""
        failure = {"kind": kind, "message": message, "stage": self.current}
        self.send(failure=failure, **({"lost_peer": True} if lost_peer else {}))
