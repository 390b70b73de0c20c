"""Executing a program: what it takes from the operating system, what it prints, and what it leaves behind."""

import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import IO, NamedTuple

from benchmarker import (
    FLOATS,
    Case,
    Counted,
    Execution,
    Figure,
    Support,
    TrialError,
    UserError,
    Workload,
    hookimpl,
    scratch,
)
from benchmarker_problems.program import Program
from benchmarker_problems.program.figures import OF_SYSTEM, declared, pattern_of

KEPT_BYTES = 1 << 20
"""What is kept of the beginning of an output, and as much of its end: patterns see no more of it."""
STARTS = 11
"""How often an empty program is started to see how long that takes."""
MOSTLY_STARTED = 2.0
"""How many times as long a program takes at most if starting it is most of what is timed."""
DRAIN_S = 1.0
"""Longest time to wait for the end of an output once everything that wrote to it is ended."""
SANE = "a program is held to the patterns of --sanity"
UNCHECKED = "nothing tells whether the output is right; give a pattern with --sanity"
LAST_LINE = 300
"""Most characters of the last line that is told of a program that fails."""


@hookimpl
def describe_workload() -> Support:
    """Return that a program is executed, in whatever precision it computes."""
    return Support({"inference": FLOATS})


@hookimpl
def build_workload(problem: Program, case: Case) -> Workload:
    """Return the program, which is executed only to be timed: nothing is run to check it."""

    def no_step() -> None:
        raise UserError("a program has no steps")

    execution = ProgramExecution(problem, case)
    return Workload(
        step=no_step,
        outputs=lambda _: {},
        exact=lambda: SANE if problem.sanity else UNCHECKED,
        counted=Counted(flops=None, bytes=None, samples=1, source=None),
        execution=execution,
        suspicions=execution.suspicions,
    )


class _Output:
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


class _Ended(NamedTuple):
    """An execution that has ended: how long it took, its outputs, its status, and what the system counted."""

    duration_ns: int
    outputs: tuple[_Output, _Output]
    status: int
    used: resource.struct_rusage

    @property
    def text(self) -> str:
        """What it printed, as patterns see it."""
        return "\n".join(output.kept().decode(errors="replace") for output in self.outputs)


class ProgramExecution(Execution):
    """A program of a trial, with a folder of its own that is deleted at the end."""

    def __init__(self, problem: Program, case: Case) -> None:
        self._problem = problem
        self._measuring = case.measuring
        self._ended: list[_Ended] = []
        self._empty: list[_Ended] = []
        self._own_bytes = 0
        self._stack = ExitStack()
        self._scratch = ""

    def prepare(self) -> None:
        """Make the folder, start an empty program a few times, and execute what --prepare names."""
        problem, measuring = self._problem, self._measuring
        if problem.prepare and measuring.blocks + measuring.warmup_steps > 1:
            raise UserError("--prepare is for one execution in a trial; give --trials instead of --blocks")
        self._empty = [_executed(["true"], os.environ) for _ in range(STARTS)]
        self._scratch = str(self._stack.enter_context(scratch()))
        with self._closing_on_failure():
            self._beside("prepare", problem.prepare)

    def block(self, steps: int) -> int:
        """Execute the program once, in a session of its own, and wait for it; returns its duration in ns."""
        with self._closing_on_failure():
            environment = {**os.environ, "BENCHMARKER_SCRATCH": self._scratch}
            ended = _executed(self._problem.words(self._scratch), environment)
            self._ended.append(ended)
            self._own_bytes = _peak_bytes(resource.getrusage(resource.RUSAGE_SELF))
            if ended.status:
                raise _failure(ended)
        return ended.duration_ns

    def figures(self) -> Sequence[Figure]:
        """Return the figures of the timed executions, and remove the folder; raises `TrialError` if one is not sane."""
        timed = self._ended[self._measuring.warmup_steps :]
        try:
            for line in filter(None, self._problem.sanity.splitlines()):
                if not all(pattern_of("--sanity", line).search(one.text) for one in timed):
                    raise TrialError(f"the output has no match of --sanity={line}", "check")
            found = [
                Figure(each.name, each.unit, each.better, [value for one in timed for value in each.found(one.text)])
                for each in declared(self._problem.figure)
            ]
        finally:
            self._close()
        of_system = (
            [one.used.ru_utime for one in timed],
            [one.used.ru_stime for one in timed],
            [one.duration_ns / 1e9 for one in self._empty],
        )
        return [*(Figure(name, "s", "lower", of) for name, of in zip(OF_SYSTEM, of_system, strict=True)), *found]

    def suspicions(self) -> Sequence[str]:
        """Return that starting a process is most of what was timed, if it is."""
        empty_ns = min(one.duration_ns for one in self._empty)
        own_ns = min(one.duration_ns for one in self._ended)
        if own_ns > MOSTLY_STARTED * empty_ns:
            return []
        return [
            f"it takes {own_ns / 1e6:.2g} ms at best, and an empty program {empty_ns / 1e6:.2g} ms: give it more to do"
        ]

    def peak_rss_bytes(self) -> int | str:
        """Return the largest resident set of a process of the program.

        The system counts what this process had when it started the program, so nothing below that is known.
        """
        peak = max(_peak_bytes(one.used) for one in self._ended)
        if peak > self._own_bytes:
            return peak
        return f"it is at most {self._own_bytes >> 20} MiB, those of the process that started the program"

    def _beside(self, option: str, lines: str) -> None:
        """Let a shell execute what is not timed; raises `TrialError` if it fails."""
        for line in filter(None, lines.splitlines()):
            text = self._problem.filled(line, self._scratch, quoted=True)
            done = subprocess.run(["sh", "-c", text], check=False, stdin=subprocess.DEVNULL, stdout=2)
            if done.returncode:
                raise TrialError(f"--{option} ended with status {done.returncode}: {line}", exit=done.returncode)

    @contextmanager
    def _closing_on_failure(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._close()
            raise

    def _close(self) -> None:
        """Log what was printed, execute what --cleanup names, and delete the folder."""
        for ended in self._ended:
            _log(ended.outputs)
        with self._stack:
            self._beside("cleanup", self._problem.cleanup)


def _executed(words: Sequence[str], environment: Mapping[str, str]) -> _Ended:
    """Execute a program, and end what it leaves behind; what it printed is read later, or logged if it did not end."""
    begun_ns = time.perf_counter_ns()
    try:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=environment,
        )
    except OSError as error:
        raise TrialError(f"{words[0]} cannot be executed: {error.strerror}") from error
    assert process.stdout is not None
    assert process.stderr is not None
    outputs = (_Output(process.stdout), _Output(process.stderr))
    try:
        _, status, used = os.wait4(process.pid, 0)
        duration_ns = time.perf_counter_ns() - begun_ns
        process.returncode = os.waitstatus_to_exitcode(status)
    except BaseException:
        _end_session(process.pid)
        _log(outputs)
        raise
    _end_session(process.pid)
    return _Ended(duration_ns, outputs, process.returncode, used)


def _end_session(pid: int) -> None:
    """End what a program has started, but for what has a session of its own, which the end of the trial ends."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _failure(ended: _Ended) -> TrialError:
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


def _log(outputs: Sequence[_Output]) -> None:
    """Write what a program printed where the record keeps what a trial prints."""
    for name, output in zip(("output", "error"), outputs, strict=True):
        if printed := output.kept():
            with os.fdopen(os.dup(2), "wb") as log:
                log.write(f"[standard {name} of the program]\n".encode() + printed)


def _peak_bytes(used: resource.struct_rusage) -> int:
    """Return the largest resident set, which Linux counts in KiB and macOS in bytes (getrusage(2))."""
    return used.ru_maxrss if sys.platform == "darwin" else used.ru_maxrss * 1024


def _printable(text: str) -> str:
    return re.sub(r"[^\x20-\x7e\u00a0-\uffff]+", " ", text)
