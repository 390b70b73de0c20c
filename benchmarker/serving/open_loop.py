"""Send requests when their time has come, whether others were answered or not, and note when tokens arrive.

planned arrival    sent        first token         last token
       |------------|---------------|----|----|----|----|
        lateness                     ITL  ITL  ...
       |------------- TTFT ---------|
       |------------------- end to end ----------------|

Latencies count from the planned arrival. If they counted from the sending, a client that is late would hide its own
delay, and with it a server's (coordinated omission: Tene, How NOT to Measure Latency, 2013).
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from benchmarker.records.load import FailureKind, RequestFailure, RequestOutcome
from benchmarker.serving.arrivals import Request

DIGITS = 6
"""Decimals of the times that are kept: microseconds."""


@dataclass(frozen=True, slots=True)
class Usage:
    """The tokens that the server counted; None if it did not tell."""

    prompt_tokens: int | None = None
    answer_tokens: int | None = None


class RequestError(Exception):
    """A request has no whole answer."""

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Server(Protocol):
    """What answers requests, in the running event loop."""

    async def answer(self, request: Request, token: Callable[[float], None]) -> Usage:
        """Answer a request; call `token` with the time of the event loop when each chunk with text arrives.

        Raises `RequestError` if there is no whole answer.
        """


class Overload(Exception):  # noqa: N818 - what a server is in, no error of the program
    """So many requests timed out that no answer to the others could change the result, and the load ends."""


async def drive(
    server: Server, requests: Sequence[Request], timeout_s: float, done: Callable[[RequestOutcome], None]
) -> None:
    """Send requests, in order of arrival, each at its time; call `done` with each outcome as soon as it is known.

    A request fails `timeout_s` after its planned arrival. Time is that of the running event loop. If `done` raises
    `Overload`, nothing more is sent, and the requests in flight are dropped. If this is cancelled, they have no
    outcome.
    """
    loop = asyncio.get_running_loop()
    begin = loop.time()
    overloaded = asyncio.Event()
    try:
        async with asyncio.TaskGroup() as group:
            for request in requests:
                await asyncio.sleep(begin + request.arrival_s - loop.time())
                group.create_task(_outcome(server, request, begin, timeout_s, done, overloaded))
    except* Overload:
        pass


async def _outcome(
    server: Server,
    request: Request,
    begin: float,
    timeout_s: float,
    done: Callable[[RequestOutcome], None],
    overloaded: asyncio.Event,
) -> None:
    sent = asyncio.get_running_loop().time()
    times: list[float] = []
    usage, failure = Usage(), None
    try:
        async with asyncio.timeout_at(begin + request.arrival_s + timeout_s):
            usage = await server.answer(request, times.append)
        if not times:
            raise RequestError("invalid", "the answer has no text")
    except RequestError as error:
        failure = RequestFailure(error.kind, str(error))
    except TimeoutError:
        failure = RequestFailure("timeout", f"no whole answer within {timeout_s:g} s")
    except asyncio.CancelledError:
        if not overloaded.is_set():
            raise
        failure = RequestFailure("dropped", "in flight when the load ended, because of overload")
    arrival_s, sent_s, *chunks_s = (
        round(time, DIGITS) for time in (request.arrival_s, sent - begin, *(time - begin for time in times))
    )
    outcome = RequestOutcome(
        arrival_s=arrival_s,
        prompt_len=request.prompt_len,
        new_tokens=request.new_tokens,
        sent_s=max(arrival_s, sent_s),  # a timer of the event loop may be early by its resolution
        chunks_s=chunks_s,
        prompt_tokens=usage.prompt_tokens,
        answer_tokens=usage.answer_tokens,
        failure=failure,
    )
    try:
        done(outcome)
    except Overload:
        if not overloaded.is_set():
            overloaded.set()
            raise
