"""The worker's side of its pipes: what the parent commands after the task, and the stages that are reported to it.

If the parent ends, so does the worker.
"""

import faulthandler
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from types import CodeType, FrameType

import msgspec

from benchmarker.records.record import Failure, FailureKind
from benchmarker.worker import protocol
from benchmarker.worker.protocol import Address, Events, InvalidLineError, Sender, message_of


class Parent:
    """Listens to the parent in a thread; `waits` says whether the main thread waits for another rank.

    `synchronize` is the code with which it waits for its device. `requests` are those for a worker that serves.
    """

    def __init__(self, commands: Iterator[bytes], events: Events) -> None:
        self._commands = commands
        self._events = events
        self._addresses: SimpleQueue[Address] = SimpleQueue()
        self.requests: SimpleQueue[protocol.GenerationRequest] = SimpleQueue()
        self.waits: Callable[[], bool] = lambda: False
        self.synchronize: CodeType | None = None
        threading.Thread(target=self._listen, daemon=True).start()

    def address(self) -> Address:
        """Wait for the address of rank 0."""
        return self._addresses.get()

    def _listen(self) -> None:
        """Obey commands until the pipe closes; then end the process, so that a killed parent leaves no worker behind.

        So does whatever else ends this thread, such as a line that is not a message: the last line of the log says it.
        """
        try:
            for line in self._commands:
                self._do(message_of(line, protocol.Command))
        except InvalidLineError as error:
            sys.stderr.write(f"the worker was told what is not valid: {error}\n")
        except Exception:  # noqa: BLE001 - whatever it is, nobody would hear the parent any more
            traceback.print_exc()
        finally:
            os._exit(1)

    def _do(self, command: protocol.Command) -> None:
        if command.address:
            self._addresses.put(command.address)
        if command.request:
            self.requests.put(command.request)
        if command.stacks:
            frame = _main_frame()
            synchronizes = _is_within(frame, self.synchronize)
            self._events.send(protocol.Position(_place(frame), self.waits(), synchronizes))
            faulthandler.dump_traceback()


def _main_frame() -> FrameType:
    main = threading.main_thread().ident
    return sys._current_frames()[main] if main is not None else sys._getframe()


def _is_within(frame: FrameType | None, code: CodeType | None) -> bool:
    """Whether a frame is that of a function with this code, or of what it has called."""
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame is not None


def _place(frame: FrameType) -> str:
    """Return where a thread is: `step (gemm.py:12)`."""
    code = frame.f_code
    return f"{code.co_name} ({Path(code.co_filename).name}:{frame.f_lineno})"


REPORT_EVERY_S = 1.0
"""Shortest time between progress reports: sending and showing them takes processor time from the measurement."""


class Stages:
    """Reports to the parent when each stage begins and ends, and events of the case whose number is `of`."""

    def __init__(self, events: Sender) -> None:
        self.events = events
        self.of = 0
        self.current = "open"
        self._last_report_s = 0.0

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Return the context of a stage."""
        self.current = name
        self._last_report_s = 0.0
        self.events.send(protocol.StageBegan(name))
        start = time.perf_counter()
        yield
        self.events.send(protocol.StageEnded(name, time.perf_counter() - start))

    def send(self, event: protocol.Event) -> None:
        """Send an event of the case."""
        self.events.send(msgspec.structs.replace(event, of=self.of))

    def report_progress(self, done: int, step_s: float) -> None:
        """Report progress, unless that was done just now."""
        now = time.perf_counter()
        if now - self._last_report_s >= REPORT_EVERY_S:
            self._last_report_s = now
            self.send(protocol.StepsDone(done, step_s))

    def publish(self, host: str, port: int, token: str) -> None:
        """Send the address of this process, rank 0, for the others."""
        self.events.send(protocol.Listening(Address(host, port, token)))

    def fail(self, kind: FailureKind, message: str, lost_peer: bool = False, status: int | None = None) -> None:
        """Report a failure, which may be that another rank was lost; `status` is the exit status of a program."""
        self.send(protocol.Failed(Failure(kind, message, self.current, exit=status), lost_peer))
