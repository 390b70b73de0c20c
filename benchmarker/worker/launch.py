"""The parent's side of a worker: start it, listen until it ends, and clean up after it."""

from __future__ import annotations

import math
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from benchmarker import guard
from benchmarker.worker.protocol import InvalidEventError, decode

if TYPE_CHECKING:
    from pathlib import Path
    from typing import IO, BinaryIO

    from benchmarker.worker.protocol import Request

GRACE_S = 2.0
"""Time that a worker is given after its timeout to send the blocks that it has."""
LINE_BYTES = 64 << 20
"""Longest event: a million blocks take a fifth of it."""
LOG_BYTES = 8 << 20
"""Longest log of a worker's standard error."""
CHUNK_BYTES = 1 << 16
DRAIN_S = 1.0
"""Longest time for reading what an ended worker left in its pipes."""
POLL_S = 0.1
"""Time between looks at the process where the system cannot tell that it has ended."""

Event = Mapping[str, Any]
Environment = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Ending:
    """How a worker ended: its exit status (negative: the signal), whether it timed out, and how long it ran.

    `fault` states, if it is not empty, why the worker was ended: what it sent is not valid.
    """

    exit: int
    timed_out: bool
    wall_s: float
    fault: str = ""


def converse(
    request: Request,
    environment: Environment,
    timeout_s: float,
    log: Path,
    hear: Callable[[Event], None],
    started: Callable[[IO[bytes]], None] = lambda _: None,
) -> Ending:
    """Run a worker to its end and pass on each valid event; the parent sleeps while there is none.

    `started` is given the worker's standard input, for a task that has orders after the request.

    The worker ends when its process does, whatever its children hold open, or at the time limit, whatever it closed.
    Its standard error goes to `log`, up to LOG_BYTES. However this function ends, even by an interrupt, the worker and
    the processes that it started are ended too.
    """
    start = time.monotonic()
    with (
        log.open("wb", buffering=0) as file,
        subprocess.Popen(
            guard.command("benchmarker.worker"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, **environment},
            pass_fds=[line.socket for line in request.sensors.values()],
            start_new_session=True,
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        errors = _Log(file)
        lines = _Lines(hear)
        fault, timed_out = "", False
        try:
            with suppress(BrokenPipeError):  # it has ended already; its standard error says why
                process.stdin.write(msgspec.json.encode(msgspec.structs.replace(request, spawned_s=start)) + b"\n")
            started(process.stdin)
            readers = {process.stdout.fileno(): lines.take, process.stderr.fileno(): errors.take}
            timed_out = not _until_the_end(process, readers, start + timeout_s)
            if timed_out:
                process.terminate()
                _until_the_end(process, readers, time.monotonic() + GRACE_S)
        except InvalidEventError as error:
            fault = f"{error} (from {' or '.join(_plugins(request))})"
        finally:
            guard.end(process)
            errors.end()
        process.wait()
    return Ending(process.returncode, timed_out, time.monotonic() - start, fault)


def _plugins(request: Request) -> list[str]:
    """Return the addresses of the plugins that speak in a worker."""
    problems = dict.fromkeys([*filter(None, [request.problem]), *(case.problem for case in request.cases)])
    return [f"framework.{request.framework}", *(f"workload.{name}.{request.framework}" for name in problems)]


class _Lines:
    """Passes on each whole line that arrives as an event; raises InvalidEventError if one is too long or not valid."""

    def __init__(self, hear: Callable[[Event], None]) -> None:
        self._hear = hear
        self._chunks: list[bytes] = []
        self._length = 0

    def take(self, chunk: bytes) -> None:
        first, *rest = chunk.split(b"\n")
        self._chunks.append(first)
        self._length += len(first)
        if self._length > LINE_BYTES:
            raise InvalidEventError(f"a line of more than {LINE_BYTES >> 20} MiB")
        if rest:
            lines = [b"".join(self._chunks), *rest]
            self._chunks, self._length = [lines[-1]], len(lines[-1])
            for line in lines[:-1]:
                self._hear(decode(line))


class _Log:
    """Writes what arrives to a file, up to a limit; the last line then states how much was left out."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._room = LOG_BYTES
        self._left_out = 0

    def take(self, chunk: bytes) -> None:
        kept = chunk[: self._room]
        self._file.write(kept)
        self._room -= len(kept)
        self._left_out += len(chunk) - len(kept)

    def end(self) -> None:
        if self._left_out:
            self._file.write(f"\n[benchmarker: {self._left_out} more bytes are left out]\n".encode())


def _until_the_end(
    process: subprocess.Popen[bytes], readers: Mapping[int, Callable[[bytes], None]], deadline: float
) -> bool:
    """Pass on what the process writes until it has ended (True) or the deadline has passed (False)."""
    with selectors.DefaultSelector() as selector, _ended(process) as ended:
        longest = POLL_S if ended is None else math.inf
        if ended is not None:
            selector.register(ended, selectors.EVENT_READ)
        for descriptor in readers:
            selector.register(descriptor, selectors.EVENT_READ)
        while True:
            over = process.poll() is not None
            if over:  # read what it left, but do not wait for a child that still writes
                deadline = min(deadline, time.monotonic() + DRAIN_S)
            left = deadline - time.monotonic()
            ready = [key.fd for key, _ in selector.select(0 if over else max(0.0, min(left, longest)))]
            for descriptor in readers.keys() & ready:
                if chunk := os.read(descriptor, CHUNK_BYTES):
                    readers[descriptor](chunk)
                else:
                    selector.unregister(descriptor)
            if left <= 0 or (over and not readers.keys() & ready):
                return over


@contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[int | None]:
    """A descriptor that becomes readable when the process ends; None where the system has none (Linux 5.3 has)."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except (AttributeError, OSError):
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def ending_text(ending: Ending, log: Path) -> str:
    """One line on how a worker ended without completing its task."""
    if ending.fault:
        return f"the worker sent what is not valid: {ending.fault}"
    if ending.timed_out:
        return f"not finished after {ending.wall_s:.0f} s; allow more time with --timeout"
    if ending.exit < 0:
        name = signal.Signals(-ending.exit).name
        hint = "; the system may have run out of memory" if name == "SIGKILL" else ""
        return f"the worker was ended by {name}{hint}"
    lines = log.read_text(errors="replace").strip().splitlines()
    return f"the worker ended with status {ending.exit}" + (f": {lines[-1][:300]}" if lines else "")
