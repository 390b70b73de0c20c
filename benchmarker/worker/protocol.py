"""The messages between the parent and a worker, each one line of JSON."""

from __future__ import annotations

import os
from typing import Any, Literal

import msgspec
from msgspec import Struct

from benchmarker.api.case import Case, Mode
from benchmarker.power.window import Line


class Request(Struct, frozen=True, kw_only=True):
    """A task for a worker: describe a framework, run a trial of a case, profile it, or check a case's modes.

    A profile is written to a file in `folder`. A trial has one case, or the two of a duet, whose order is drawn from
    `seed`. `sensors` are the connections to the samplers of its meters. `spawned_s` is when the worker was started, by
    the monotonic clock, which processes share.
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
    """The channel from the worker to the parent."""

    def __init__(self, descriptor: int) -> None:
        self._file = os.fdopen(descriptor, "wb")

    def send(self, **event: Any) -> None:
        """Send one event."""
        self._file.write(msgspec.json.encode(event) + b"\n")
        self._file.flush()
