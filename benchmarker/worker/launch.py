"""The parent's side of a worker: start it, listen until it ends, and clean up after it."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarker.worker.protocol import Request

GRACE_S = 2.0
"""Time that a worker is given after its timeout to send the blocks that it has."""

Event = Mapping[str, Any]
Environment = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Ending:
    """How a worker ended: its exit status (negative: the signal), whether it timed out, and how long it ran."""

    exit: int
    timed_out: bool
    wall_s: float


def converse(
    request: Request, environment: Environment, timeout_s: float, log: Path, hear: Callable[[Event], None]
) -> Ending:
    """Run a worker to its end and pass on each event; the parent sleeps while there is none.

    However this function ends, even by an interrupt, the worker and the processes that it started are ended too.
    """
    start = time.monotonic()
    with (
        log.open("wb") as stderr,
        subprocess.Popen(
            [sys.executable, "-P", "-m", "benchmarker.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env={**os.environ, **environment},
            pass_fds=[line.socket for line in request.sensors.values()],
            start_new_session=True,
        ) as process,
    ):
        assert process.stdin is not None
        try:
            process.stdin.write(msgspec.json.encode(msgspec.structs.replace(request, spawned_s=start)) + b"\n")
            process.stdin.flush()
            timed_out = not _listen(process, start + timeout_s, hear)
            if timed_out:
                process.terminate()
                _listen(process, time.monotonic() + GRACE_S, hear)
            else:
                process.wait()
        except BrokenPipeError:
            timed_out = False
            process.wait()
        finally:
            _end_group(process)
    return Ending(process.returncode, timed_out, time.monotonic() - start)


def _listen(process: subprocess.Popen[bytes], deadline: float, hear: Callable[[Event], None]) -> bool:
    """Pass events on until the worker closes its end (True) or the deadline passes (False)."""
    assert process.stdout is not None
    pending = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while selector.select(max(0.0, deadline - time.monotonic())):
            chunk = os.read(process.stdout.fileno(), 1 << 16)
            if not chunk:
                return True
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                hear(msgspec.json.decode(line))
    return False


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of the worker's session (the worker leads its own process group)."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def ending_text(ending: Ending, log: Path) -> str:
    """One line on how a worker ended without completing its task."""
    if ending.timed_out:
        return f"not finished after {ending.wall_s:.0f} s; allow more time with --timeout"
    if ending.exit < 0:
        name = signal.Signals(-ending.exit).name
        hint = "; the system may have run out of memory" if name == "SIGKILL" else ""
        return f"the worker was ended by {name}{hint}"
    lines = log.read_text(errors="replace").strip().splitlines()
    return f"the worker ended with status {ending.exit}" + (f": {lines[-1][:300]}" if lines else "")
