"""A process of a program: what it prints, what the operating system counts of it, and what it leaves behind."""

import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, NamedTuple

from benchmarker import TrialError

KEPT_BYTES = 1 << 20
"""What is kept of the beginning of an output, and as much of its end: patterns see no more of it."""
DRAIN_S = 1.0
"""Longest time to wait for the end of an output once everything that wrote to it is ended."""
LAST_LINE = 300
"""Most characters of the last line that is told of a program that fails."""


class Output:
    """Reads an output to its end in a thread, however long it is, and keeps its beginning and its end."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._head = bytearray()
        self._tail = bytearray()
        self._left_out = 0
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with self._pipe:
            while chunk := os.read(self._pipe.fileno(), 1 << 16):
                room = KEPT_BYTES - len(self._head)
                self._head += chunk[:room]
                self._tail += chunk[room:]
                if (more := len(self._tail) - 2 * KEPT_BYTES) > 0:
                    self._left_out += more + KEPT_BYTES
                    del self._tail[: more + KEPT_BYTES]

    def kept(self) -> bytes:
        """Wait for the end, and return what is kept; a line in the middle says how much is left out.

        A process that outlives the program may hold the pipe open, so the wait has a limit.
        """
        self._thread.join(DRAIN_S)
        more = max(0, len(self._tail) - KEPT_BYTES)
        left_out = self._left_out + more
        middle = f"\n[benchmarker: {left_out} bytes are left out]\n".encode() if left_out else b""
        return bytes(self._head) + middle + bytes(self._tail[more:])


class Ended(NamedTuple):
    """An execution that has ended: how long it took, its outputs, its status, and what the system counted."""

    duration_ns: int
    outputs: tuple[Output, Output]
    status: int
    used: resource.struct_rusage

    @property
    def text(self) -> str:
        """What it printed, as patterns see it."""
        return "\n".join(output.kept().decode(errors="replace") for output in self.outputs)


class Started:
    """A program that runs, in a process group of its own, with nothing on its standard input.

    In a session of its own, a program was measured to take longer beside other work, see docs/programs.md.
    """

    def __init__(
        self, words: Sequence[str], environment: Mapping[str, str], given: Sequence[int] = (), folder: str | None = None
    ) -> None:
        """Start it in a folder, with open descriptors that are `given`; raises `TrialError` if that fails."""
        self._begun_ns = time.perf_counter_ns()
        try:
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                process_group=0,
                env=environment,
                cwd=folder,
                pass_fds=given,
            )
        except OSError as error:
            raise TrialError(f"{words[0]} cannot be executed: {error.strerror}") from error
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._outputs = (Output(self._process.stdout), Output(self._process.stderr))

    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def wait(self) -> Ended:
        """Wait for its end, and end what it leaves behind.

        What it printed is read later, or logged at once if it does not end, as when an interrupt ends the waiting.
        """
        try:
            _, status, used = os.wait4(self._process.pid, 0)
            duration_ns = time.perf_counter_ns() - self._begun_ns
            self._process.returncode = os.waitstatus_to_exitcode(status)
        except BaseException:
            self.end()
            log(self._outputs)
            raise
        self.end()
        return Ended(duration_ns, self._outputs, self._process.returncode, used)

    def end(self) -> None:
        """End it with what it has started, but for what has a session of its own, which the end of the trial ends."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)


def failure(ended: Ended) -> TrialError:
    """Return why an execution failed, with the last line that it printed."""
    out, err = (output.kept() for output in ended.outputs)
    lines = (err or out).decode(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    said = f": {_printable(last)[:LAST_LINE]}" if last else ""
    if ended.status > 0:
        return TrialError(f"the program ended with status {ended.status}{said}", "exception", ended.status)
    hint = "; the system may have run out of memory" if -ended.status == signal.SIGKILL else ""
    name = signal.Signals(-ended.status).name
    return TrialError(f"the program was ended by {name}{hint}{said}", "killed", ended.status)


def log(outputs: Sequence[Output]) -> None:
    """Write what a program printed where the record keeps what a trial prints."""
    for name, output in zip(("output", "error"), outputs, strict=True):
        if printed := output.kept():
            with os.fdopen(os.dup(2), "wb") as log:
                log.write(f"[standard {name} of the program]\n".encode() + printed)


def peak_bytes(used: resource.struct_rusage) -> int:
    """Return the largest resident set, which Linux counts in KiB and macOS in bytes (getrusage(2))."""
    return used.ru_maxrss if sys.platform == "darwin" else used.ru_maxrss * 1024


def _printable(text: str) -> str:
    return re.sub(r"[^\x20-\x7e\u00a0-\uffff]+", " ", text)
