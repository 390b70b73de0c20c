"""A framework's engine as a server: a worker that serves a case, and answers over its pipes."""

import asyncio
import itertools
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarker.api.case import Case
from benchmarker.api.errors import UserError
from benchmarker.files.locks import scratch
from benchmarker.records.load import RequestOutcome
from benchmarker.serving.arrivals import Request
from benchmarker.serving.open_loop import RequestError, Usage, drive
from benchmarker.worker import protocol
from benchmarker.worker.launch import Environment, Worker, ending_text, started
from benchmarker.worker.pipes import listen
from benchmarker.worker.protocol import Task

END_S = 5.0
"""Time that the worker is given to end."""


@dataclass(slots=True)
class _Open:
    """A request in flight: how many tokens are missing, and what is called with the time of each."""

    missing: int
    token: Callable[[float], None]
    whole: asyncio.Future[None]


class EngineServer:
    """A `Server` whose engine runs in a worker; `described` is what that told of itself, as parts of a record."""

    def __init__(self, case: Case, environment: Environment, folder: Path) -> None:
        self.described: dict[str, Any] = {}
        self._log = folder / "log"
        self._worker: Future[Worker] = Future()
        self._ready: Future[None] = Future()
        self._numbers = itertools.count()
        self._open: dict[int, _Open] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._gone = ""
        self._thread = threading.Thread(target=self._converse, args=(case, environment), daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Return when the engine is ready; raises `UserError` if it never is."""
        self._ready.result()

    def end(self) -> None:
        """End the worker."""
        with suppress(UserError):
            self._worker.result().hang_up()
        self._thread.join(END_S)

    def send(self, requests: Sequence[Request], done: Callable[[RequestOutcome], None], timeout_s: float) -> None:
        """Send requests at their times; see `drive`."""

        async def run() -> None:
            self._loop = asyncio.get_running_loop()
            try:
                await drive(self, requests, timeout_s, done)
            finally:
                self._loop = None

        asyncio.run(run())

    async def answer(self, request: Request, token: Callable[[float], None]) -> Usage:
        """Answer a request; see `Server`."""
        if self._gone:
            raise RequestError("refused", self._gone)
        number, worker = next(self._numbers), self._worker.result()
        whole = asyncio.get_running_loop().create_future()
        self._open[number] = _Open(request.new_tokens, token, whole)
        try:
            worker.send(
                protocol.Command(request=protocol.GenerationRequest(number, request.prompt_len, request.new_tokens))
            )
            await whole
        except asyncio.CancelledError:
            worker.send(protocol.Command(request=protocol.GenerationRequest(number)))
            raise
        finally:
            del self._open[number]
        return Usage(request.prompt_len, request.new_tokens)

    def _converse(self, case: Case, environment: Environment) -> None:
        task = Task(kind="serve", framework=case.framework, cases=(case,))
        try:
            with started(task, environment, self._log, self._on_event) as worker:
                self._worker.set_result(worker)
                listen([worker], math.inf, lambda: bool(worker.fault))
            gone = ending_text(worker.ending(timed_out=False), self._log)
        except OSError as error:
            gone = f"the worker cannot be started: {error.strerror}"
        for future in (self._worker, self._ready):
            if not future.done():
                future.set_exception(UserError(gone))
        self._in_loop(self._fail, gone)

    def _on_event(self, event: protocol.Event) -> None:
        """Take an event, in the worker's thread."""
        if isinstance(event, protocol.Tokens):
            self._in_loop(self._take, event.ids, time.monotonic())  # the clock of event loops
        elif isinstance(event, protocol.RecordPart):
            self.described.update(event.sent())
        elif isinstance(event, protocol.Checked):
            self.described["check"] = event.check
        elif isinstance(event, protocol.Refused) and not self._ready.done():
            self._ready.set_exception(UserError(event.message))
        elif isinstance(event, protocol.Done):
            self._ready.set_result(None)

    def _in_loop(self, function: Callable[..., None], *args: Any) -> None:
        loop = self._loop
        if loop is None:
            function(*args)
            return
        with suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits
            loop.call_soon_threadsafe(function, *args)

    def _take(self, numbers: Sequence[int], now: float) -> None:
        for number in numbers:
            request = self._open.get(number)
            if request is None:
                continue
            request.token(now)
            request.missing -= 1
            if not request.missing and not request.whole.done():
                request.whole.set_result(None)

    def _fail(self, gone: str) -> None:
        self._gone = gone
        for request in self._open.values():
            if not request.whole.done():
                request.whole.set_exception(RequestError("cut", gone))


@contextmanager
def serving(case: Case, environment: Environment) -> Iterator[EngineServer]:
    """Start an engine, and end it with the context; raises `UserError` if it cannot be used, or its check fails."""
    with scratch() as folder:
        server = EngineServer(case, environment, folder)
        try:
            server.wait()
            yield server
        finally:
            server.end()
