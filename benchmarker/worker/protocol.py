"""What the parent and a worker say to each other: one JSON line a message."""

from __future__ import annotations

import os
from typing import Any, Literal

import msgspec
from msgspec import Struct

from benchmarker.api.case import Case, Mode
from benchmarker.power.window import Line


class Request(Struct, frozen=True, kw_only=True):
    """What the parent asks of a worker: to describe a framework, try or profile a case, or check a case's modes.

    A profile goes to a file in `folder`. A trial has one case, or the two of a duet, whose order is drawn from `seed`.
    `sensors` are the ways to the samplers of its meters. `spawned_s` is the monotonic clock, which processes share, as
    the worker was started.
    """

    task: Literal["describe", "trial", "check", "profile"]
    framework: str
    problem: str | None = None
    cases: tuple[Case, ...] = ()
    seed: int = 0
    modes: tuple[Mode, ...] = ()
    steps: int = 0
    folder: str = ""
    sensors: dict[str, Line] = {}
    spawned_s: float = 0.0


class Events:
    """The way back to the parent, for the worker."""

    def __init__(self, descriptor: int) -> None:
        self._file = os.fdopen(descriptor, "wb")

    def send(self, **event: Any) -> None:
        """Send one event."""
        self._file.write(msgspec.json.encode(event) + b"\n")
        self._file.flush()
