"""The parent's side of a worker: start it, listen until it ends, and clean up after it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from benchmarker import guard
from benchmarker.api.case import Case
from benchmarker.machine import gpus
from benchmarker.worker.pipes import Child, Lines, listen
from benchmarker.worker.protocol import Event, InvalidLineError, Task, event_of

GRACE_S = 2.0
"""Time that a worker is given after its timeout to send the blocks that it has."""
LINE_BYTES = 64 << 20
"""Longest event: a million blocks take a fifth of it."""
LOG_BYTES = 8 << 20
"""Longest log of a worker's standard error."""
Environment = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Ending:
    """How a worker ended: its exit status (negative: the signal), whether it timed out, and how long it ran.

    `fault` states, if it is not empty, why the worker was ended: what it sent is not valid. Of several ranks, all this
    is about the `rank` that failed, None if it is not known; `where` says where the ranks were at the timeout. Over
    several nodes, `node` is that of the rank, and `lost` states, if it is not empty, why it was lost; the exit status
    is then not known.
    """

    exit: int | None
    timed_out: bool
    wall_s: float
    fault: str = ""
    rank: int | None = None
    where: str = ""
    node: str | None = None
    lost: str = ""


def run_worker(
    task: Task, environment: Environment, timeout_s: float, log: Path, on_event: Callable[[Event], None]
) -> Ending:
    """Run a worker to its end and pass on each valid event; the parent sleeps while there is none.

    The worker ends when its process does, whatever its children hold open, or at the time limit, whatever it closed.
    Its standard error goes to `log`, up to LOG_BYTES. However this function ends, even by an interrupt, the worker and
    the processes that it started are ended too.
    """
    with started(task, environment, log, on_event) as worker:
        ended = listen([worker], worker.start_s + timeout_s, lambda: bool(worker.fault))
        timed_out = not ended and not worker.fault
        if timed_out:
            worker.process.terminate()
            listen([worker], time.monotonic() + GRACE_S, lambda: bool(worker.fault))
    return worker.ending(timed_out)


@contextmanager
def inherited(name: str, value: str) -> Iterator[None]:
    """Set an environment variable that workers inherit which are started in the context."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before


def environment_of(case: Case, number: int, environment: Environment) -> Environment:
    """Return the environment of a rank, by its number on this machine.

    It sees all GPUs of the case that are here, or its own if the devices compute independently.
    """
    return (
        {**environment, **gpus.one_of(case.device, number, {**os.environ, **environment})}
        if case.independent
        else environment
    )


class Worker(Child):
    """A worker of this machine, started at `start_s`; `fault` says what it sent that is not valid, if anything."""

    lost = ""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        start_s: float,
        task: Task,
        errors: _Log,
        on_event: Callable[[Event], None],
    ) -> None:
        super().__init__(process, self._take, errors.take)
        self.start_s = start_s
        self.fault = ""
        self._task = task
        self._lines = Lines(LINE_BYTES, lambda line: on_event(event_of(line)))

    @property
    def status(self) -> int | None:
        """The exit status of the process (negative: the signal), None until it is seen to have ended."""
        return self.process.returncode

    def terminate(self) -> None:
        """Send SIGTERM: the worker sends what it has, and ends."""
        self.process.terminate()

    def ending(self, timed_out: bool) -> Ending:
        """Return how the process ended, which it has."""
        return Ending(self.process.wait(), timed_out, time.monotonic() - self.start_s, self.fault)

    def _take(self, chunk: bytes) -> None:
        if not self.fault:
            try:
                self._lines.take(chunk)
            except InvalidLineError as error:
                self.fault = f"{error} (from {' or '.join(_plugins(self._task))})"


@contextmanager
def started(task: Task, environment: Environment, log: Path, on_event: Callable[[Event], None]) -> Iterator[Worker]:
    """Start a worker; when the context ends, however it does, the worker and what it started are ended."""
    start = time.monotonic()
    module = ("benchmarker.worker.built", task.packages) if task.packages else ("benchmarker.worker",)
    with (
        log.open("wb", buffering=0) as file,
        guard.started(
            *module,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, **environment},
            pass_fds=[link.socket for link in task.sensors.values()],
        ) as process,
    ):
        errors = _Log(file)
        try:
            worker = Worker(process, start, task, errors, on_event)
            worker.send(msgspec.structs.replace(task, spawned_s=start))
            yield worker
        finally:
            errors.end()


def _plugins(task: Task) -> list[str]:
    """Return the addresses of the plugins that speak in a worker."""
    problems = dict.fromkeys([*filter(None, [task.problem]), *(case.problem for case in task.cases)])
    return [f"framework.{task.framework}", *(f"workload.{name}.{task.framework}" for name in problems)]


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


def ending_text(ending: Ending, log: Path) -> str:
    """One line on how a worker ended without completing its task; `log` is the worker's, or that of its rank."""
    if ending.lost:
        return ending.lost
    whose = "" if ending.rank is None or ending.timed_out else f"{rank_text(ending.rank, ending.node)}: "
    return f"{whose}{_ending_text(ending, log)}"


def rank_text(rank: int, node: str | None) -> str:
    """Return a rank in words, with its node if there are several."""
    return f"rank {rank}" + (f" on {node}" if node else "")


def _ending_text(ending: Ending, log: Path) -> str:
    if ending.fault:
        return f"the worker sent what is not valid: {ending.fault}"
    if ending.timed_out:
        where = f" ({ending.where})" if ending.where else ""
        waited = f"{ending.wall_s:{'.0f' if ending.wall_s >= 1 else '.1g'}} s"
        return f"not finished after {waited}{where}; allow more time with --timeout (timeout_s in Python)"
    if ending.exit is not None and ending.exit < 0:
        name = signal.Signals(-ending.exit).name
        hint = "; the system may have run out of memory" if name == "SIGKILL" else ""
        return f"the worker was ended by {name}{hint}"
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return f"the worker ended with status {ending.exit}" + (f": {lines[-1][:300]}" if lines else "")
