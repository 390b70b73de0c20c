"""The parent's side of a worker: start it, listen until it ends, and clean up after it."""

from __future__ import annotations

import math
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from benchmarker import guard
from benchmarker.worker.protocol import InvalidEventError, decode

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

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

    `fault` states, if it is not empty, why the worker was ended: what it sent is not valid. In a gang, all this is
    about the `rank` that failed, None if it is not known; `where` says where the ranks were at the timeout.
    """

    exit: int
    timed_out: bool
    wall_s: float
    fault: str = ""
    rank: int | None = None
    where: str = ""


def converse(
    request: Request, environment: Environment, timeout_s: float, log: Path, hear: Callable[[Event], None]
) -> Ending:
    """Run a worker to its end and pass on each valid event; the parent sleeps while there is none.

    The worker ends when its process does, whatever its children hold open, or at the time limit, whatever it closed.
    Its standard error goes to `log`, up to LOG_BYTES. However this function ends, even by an interrupt, the worker and
    the processes that it started are ended too.
    """
    with started(request, environment, log, hear) as worker:
        ended = listen([worker], worker.start_s + timeout_s, lambda: bool(worker.fault))
        timed_out = not ended and not worker.fault
        if timed_out:
            worker.process.terminate()
            listen([worker], time.monotonic() + GRACE_S, lambda: bool(worker.fault))
    return worker.ending(timed_out)


class Worker:
    """A worker that was started at `start_s`: its process, what it writes, and `fault`, if that is not valid."""

    def __init__(
        self, process: subprocess.Popen[bytes], start_s: float, request: Request, errors: _Log, lines: _Lines
    ) -> None:
        self.process = process
        self.start_s = start_s
        self.fault = ""
        self._request = request
        self._lines = lines
        assert process.stdout is not None
        assert process.stderr is not None
        self.readers: Mapping[int, Callable[[bytes], None]] = {
            process.stdout.fileno(): self._take,
            process.stderr.fileno(): errors.take,
        }

    def send(self, message: Struct) -> None:
        """Send a line; a worker that has ended does not get it, and its standard error says why."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(msgspec.json.encode(message) + b"\n")

    def hang_up(self) -> None:
        """Close the pipe to the worker, which then ends."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def drain(self) -> None:
        """Pass on what the ended process left, but do not wait for a child that still writes."""
        deadline = time.monotonic() + DRAIN_S
        with selectors.DefaultSelector() as selector:
            for descriptor, take in self.readers.items():
                selector.register(descriptor, selectors.EVENT_READ, take)
            while _pass_on(selector, 0) and time.monotonic() < deadline:
                pass

    def ending(self, timed_out: bool) -> Ending:
        """Return how the process ended, which it has."""
        return Ending(self.process.wait(), timed_out, time.monotonic() - self.start_s, self.fault)

    def _take(self, chunk: bytes) -> None:
        if not self.fault:
            try:
                self._lines.take(chunk)
            except InvalidEventError as error:
                self.fault = f"{error} (from {' or '.join(_plugins(self._request))})"


@contextmanager
def started(request: Request, environment: Environment, log: Path, hear: Callable[[Event], None]) -> Iterator[Worker]:
    """Start a worker; when the context ends, however it does, the worker and what it started are ended."""
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
        errors = _Log(file)
        try:
            worker = Worker(process, start, request, errors, _Lines(hear))
            worker.send(msgspec.structs.replace(request, spawned_s=start))
            yield worker
        finally:
            guard.end(process)
            errors.end()


def listen(workers: Sequence[Worker], deadline: float, enough: Callable[[], bool]) -> bool:
    """Pass on what workers write until all have ended (True), or until the deadline or until it is enough (False)."""
    watched: dict[Worker, list[int]] = {}
    with selectors.DefaultSelector() as selector, ExitStack() as stack:
        longest = math.inf
        for worker in workers:
            watched[worker] = list(worker.readers)
            for descriptor, take in worker.readers.items():
                selector.register(descriptor, selectors.EVENT_READ, take)
            ended = stack.enter_context(_ended(worker.process))
            if ended is None:
                longest = POLL_S
            else:
                watched[worker].append(ended)
                selector.register(ended, selectors.EVENT_READ)
        while watched:
            left = deadline - time.monotonic()
            _pass_on(selector, max(0.0, min(left, longest)))
            for worker in [each for each in watched if each.process.poll() is not None]:
                worker.drain()
                for descriptor in watched.pop(worker):
                    with suppress(KeyError):  # it was closed before
                        selector.unregister(descriptor)
            if watched and (left <= 0 or enough()):
                return False
    return True


def _pass_on(selector: selectors.BaseSelector, wait_s: float) -> bool:
    """Wait for descriptors and pass on what they have to their readers; returns whether any was ready."""
    ready = [key for key, _ in selector.select(None if wait_s == math.inf else wait_s)]
    for key in ready:
        if key.data is not None:
            if chunk := os.read(key.fd, CHUNK_BYTES):
                key.data(chunk)
            else:
                selector.unregister(key.fd)
    return bool(ready)


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
    """One line on how a worker ended without completing its task; `log` is the worker's, or that of its rank."""
    of_rank = "" if ending.rank is None or ending.timed_out else f"rank {ending.rank}: "
    return f"{of_rank}{_ending_text(ending, log)}"


def _ending_text(ending: Ending, log: Path) -> str:
    if ending.fault:
        return f"the worker sent what is not valid: {ending.fault}"
    if ending.timed_out:
        where = f" ({ending.where})" if ending.where else ""
        return f"not finished after {ending.wall_s:.0f} s{where}; allow more time with --timeout"
    if ending.exit < 0:
        name = signal.Signals(-ending.exit).name
        hint = "; the system may have run out of memory" if name == "SIGKILL" else ""
        return f"the worker was ended by {name}{hint}"
    lines = log.read_text(errors="replace").strip().splitlines()
    return f"the worker ended with status {ending.exit}" + (f": {lines[-1][:300]}" if lines else "")
