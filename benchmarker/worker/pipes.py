"""Processes with pipes: listen to several of them at once, until they end."""

import math
import os
import selectors
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import BinaryIO, TypeVar

import msgspec
from msgspec import Struct

from benchmarker.api.errors import UserError
from benchmarker.worker.protocol import InvalidLineError

CHUNK_BYTES = 1 << 16
DRAIN_S = 1.0
"""Longest time for reading what an ended process left in its pipes."""
POLL_S = 0.1
"""Time between looks at the process where the system cannot tell that it has ended."""

KILL_S = 3.0
"""Time that a process which has not ended by itself is given after each signal."""


class Child:
    """A process with pipes: messages go to it, and what it writes is given to those who take it, as it arrives."""

    def __init__(
        self, process: subprocess.Popen[bytes], take: Callable[[bytes], None], complain: Callable[[bytes], None]
    ) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self.process = process
        self.readers: Mapping[int, Callable[[bytes], None]] = {
            process.stdout.fileno(): take,
            process.stderr.fileno(): complain,
        }

    def send(self, message: Struct) -> None:
        """Send a line; a process that has ended does not get it, and its standard error says why."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError, ValueError):  # it has ended, or its pipe is closed
            self.process.stdin.write(msgspec.json.encode(message) + b"\n")

    def hang_up(self) -> None:
        """Close the pipe to the process, which then ends."""
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


_C = TypeVar("_C", bound=Child)


def listen(children: Sequence[Child], deadline: float, enough: Callable[[], bool]) -> bool:
    """Pass on what processes write until all have ended (True), or until the deadline or until it is enough (False)."""
    watched: dict[Child, list[int]] = {}
    unannounced: set[Child] = set()
    with selectors.DefaultSelector() as selector, ExitStack() as stack:
        for child in children:
            watched[child] = list(child.readers)
            for descriptor, take in child.readers.items():
                selector.register(descriptor, selectors.EVENT_READ, take)
            ended = stack.enter_context(_ended(child.process))
            if ended is None:
                unannounced.add(child)
            else:
                watched[child].append(ended)
                selector.register(ended, selectors.EVENT_READ, child)
        while watched:
            if enough():
                return False
            left = deadline - time.monotonic()
            ready = _pass_on(selector, max(0.0, min(left, POLL_S if unannounced else math.inf)))
            ended_now = [key.data for key in ready if isinstance(key.data, Child)]
            for child in [child for child in (*ended_now, *unannounced) if child.process.poll() is not None]:
                child.drain()
                unannounced.discard(child)
                for descriptor in watched.pop(child):
                    with suppress(KeyError):  # it was closed before
                        selector.unregister(descriptor)
            if watched and left <= 0:
                return False
    return True


def start_child(
    command: Sequence[str],
    remedy: Callable[[OSError], str],
    stdout: int | BinaryIO = subprocess.PIPE,
    stderr: int | BinaryIO = subprocess.PIPE,
) -> subprocess.Popen[bytes]:
    """Start a command in a session of its own, so that it ends in order when the terminal is interrupted.

    Raises `UserError`, which ends with the remedy, if it cannot be started.
    """
    try:
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=stdout, stderr=stderr, bufsize=0, start_new_session=True
        )
    except OSError as error:
        raise UserError(f"{command[0]} cannot be started: {error.strerror}; {remedy(error)}") from error


def end_children(children: Sequence[_C], grace_s: float, is_heard: Callable[[_C], bool] = lambda _: True) -> None:
    """Hang up on processes, at which they end, and wait; those that do not, or are not heard any more, are killed."""
    for child in children:
        child.hang_up()
    try:
        listen([child for child in children if is_heard(child)], time.monotonic() + grace_s, lambda: False)
    finally:
        for send in (subprocess.Popen.terminate, subprocess.Popen.kill):
            left = [child for child in children if child.process.poll() is None]
            for child in left:
                send(child.process)
            if left:
                listen(left, time.monotonic() + KILL_S, lambda: False)
        for child in children:
            for pipe in (child.process.stdout, child.process.stderr):
                assert pipe is not None
                pipe.close()


class Lines:
    """Passes on each whole line that arrives; raises InvalidLineError if one is longer than `longest` bytes."""

    def __init__(self, longest: int, on_line: Callable[[bytes], None]) -> None:
        self._longest = longest
        self._on_line = on_line
        self._chunks: list[bytes] = []
        self._length = 0

    def take(self, chunk: bytes) -> None:
        """Take what has arrived."""
        first, *rest = chunk.split(b"\n")
        self._chunks.append(first)
        self._length += len(first)
        if self._length > self._longest:
            raise InvalidLineError(f"a line of more than {self._longest >> 20} MiB")
        if rest:
            lines = [b"".join(self._chunks), *rest]
            self._chunks, self._length = [lines[-1]], len(lines[-1])
            for line in lines[:-1]:
                self._on_line(line)


def _pass_on(selector: selectors.BaseSelector, wait_s: float) -> list[selectors.SelectorKey]:
    """Wait for descriptors and pass on what they have to their readers; returns those that were ready."""
    ready = [key for key, _ in selector.select(None if wait_s == math.inf else wait_s)]
    for key in ready:
        if not isinstance(key.data, Child):
            if chunk := os.read(key.fd, CHUNK_BYTES):
                key.data(chunk)
            else:
                selector.unregister(key.fd)
    return ready


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
