"""A server with OpenAI's completions API on the loopback interface, and servers in virtual time."""

from __future__ import annotations

import asyncio
import json
import math
import selectors
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from benchmarker.records.load import Lengths, Load, RequestOutcome, Step
from benchmarker.serving.arrivals import Request
from benchmarker.serving.open_loop import Usage, drive
from support.records import make_record


class _NeverWaits(selectors.SelectSelector):
    """A selector that lets the clock of its loop jump to the end of each wait."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.now += timeout or 0.0
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in which sleeping takes no time: what a program does depends on no machine's speed."""

    def __init__(self, clock: _NeverWaits | None = None) -> None:
        self._clock = clock or _NeverWaits()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now


class _WaitsForAnswers(_NeverWaits):
    """One that waits while connections are open, unless the server holds the requests of all that were made."""

    def __init__(self, is_held: Callable[[int], bool]) -> None:
        super().__init__()
        self.is_held = is_held
        self.connections = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        has_open = len(self.get_map()) > 1  # the loop itself has one file
        if timeout == 0 or not has_open or self.is_held(self.connections):
            return super().select(timeout)
        return selectors.SelectSelector.select(self, 0.01)


class PatientLoop(VirtualLoop):
    """An event loop for a real server in this process: answers take no time, and what it holds times out in order.

    `is_held` says of a number of connections whether the server has heard the requests of all and answers none.
    """

    def __init__(self, is_held: Callable[[int], bool]) -> None:
        self._waiting = _WaitsForAnswers(is_held)
        super().__init__(self._waiting)

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        self._waiting.connections += 1
        await super().sock_connect(sock, address)


def virtually(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)


class Queue:
    """A server that answers one request at a time, first come first served, in `service_s` each (M/D/1)."""

    def __init__(self, service_s: float, stall: tuple[float, float] = (0.0, 0.0)) -> None:
        self.service_s, self.stall, self.free = service_s, stall, asyncio.Lock()

    async def answer(self, request: Request, token: Callable[[float], None]) -> Usage:
        loop = asyncio.get_running_loop()
        async with self.free:
            begin, length = self.stall
            if begin <= loop.time() < begin + length:
                await asyncio.sleep(begin + length - loop.time())
            token(loop.time())  # the first token comes as soon as the server is free
            await asyncio.sleep(self.service_s)
            token(loop.time())
        return Usage(request.prompt_len, 2)


def waiting_cdf(time_s: float, rate: float, service_s: float) -> float:
    """P(wait <= t) in M/D/1: a `Queue` under Poisson arrivals.

    Source: Erlang 1909; Gross & Harris, Fundamentals of Queueing Theory, section 5.1.
    """
    load = rate * service_s
    terms = (
        (load * (k - time_s / service_s)) ** k / math.factorial(k) * math.exp(-load * (k - time_s / service_s))
        for k in range(int(time_s / service_s) + 1)
    )
    return (1 - load) * sum(terms)


def outcomes(server: Any, requests: list[Request], timeout_s: float = 1e9) -> list[RequestOutcome]:
    """The outcomes of requests to a server in virtual time, in order of arrival."""
    found: list[RequestOutcome] = []
    virtually(drive(server, requests, timeout_s, found.append))
    return sorted(found, key=lambda each: each.arrival_s)


class OpenAI:
    """How the server on the loopback interface answers, and the bodies of the requests that it got.

    `fails` are the numbers of requests that it refuses with HTTP 503, `cuts` those whose answer it cuts, both from 0.
    `heard` is called with the number of each request; `close` ends the listening.
    """

    def __init__(self) -> None:
        self.models = ["toy"]
        self.token_s = 0.0
        self.tokens_per_chunk = 1
        self.has_usage = True
        self.heard: Callable[[int], object] = str
        self.close: Callable[[], object] = str
        self.fails: set[int] | range = set()
        self.cuts: set[int] | range = set()
        self.bodies: list[dict[str, Any]] = []
        self.url = ""
        self.lock = threading.Lock()


@contextmanager
def openai() -> Iterator[OpenAI]:
    """A server in threads of this process."""
    toy = OpenAI()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: Any) -> None:
            pass

        def do_GET(self) -> None:
            self.plain(200, {"data": [{"id": name} for name in toy.models]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with toy.lock:
                number = len(toy.bodies)
                toy.bodies.append(body)
            toy.heard(number)
            if number in toy.fails:
                self.plain(503, {"error": "overloaded"})
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.send_header("Connection", "close")
            self.end_headers()
            for at in range(0, body["max_tokens"], toy.tokens_per_chunk):
                if number in toy.cuts and at:
                    self.close_connection = True
                    return
                time.sleep(toy.token_s)
                self.event({"choices": [{"text": " la", "finish_reason": None}]})
            self.event({"choices": [{"text": "", "finish_reason": "length"}]})
            if toy.has_usage:
                usage = {"prompt_tokens": len(body["prompt"]), "completion_tokens": body["max_tokens"]}
                self.event({"choices": [], "usage": usage})
            self.chunk(b"data: [DONE]\n\n")
            self.wfile.write(b"0\r\n\r\n")
            self.close_connection = True

        def plain(self, status: int, value: Any) -> None:
            content = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def event(self, value: Any) -> None:
            self.chunk(f"data: {json.dumps(value)}\n\n".encode())

        def chunk(self, content: bytes) -> None:
            self.wfile.write(f"{len(content):x}\r\n".encode() + content + b"\r\n")
            self.wfile.flush()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    toy.close = lambda: server.socket.shutdown(socket.SHUT_RDWR)
    toy.url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield toy
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def load(steps: list[Step], **fields: Any) -> Load:
    """A load of these steps against a server elsewhere."""
    made: dict[str, Any] = {
        "run_id": "20260102T030405.000000-00000000",
        "benchmarker": "0.1.0",
        "machine": make_record(1.0).machine,
        "endpoint": "http://server.example:8000/v1",
        "engine": None,
        "model": "toy",
        "arrivals": "poisson",
        "burst_size": None,
        "prompt_len": Lengths(64, 64),
        "new_tokens": Lengths(2, 2),
        "seed": 0,
        "prompts": "ids",
        "ignore_eos": True,
        "timeout_s": 60.0,
        "slo": None,
        "share": 0.9,
        "searched": False,
    }
    return Load(**(made | fields), steps=steps)


def outcome(arrival_s: float, *chunks_s: float, **fields: Any) -> RequestOutcome:
    """The outcome of a request that was sent in time; the times of its chunks count from its arrival."""
    made: dict[str, Any] = {
        "prompt_len": 64,
        "new_tokens": max(1, len(chunks_s)),
        "sent_s": arrival_s,
        "chunks_s": [arrival_s + each for each in chunks_s],
        "prompt_tokens": 64,
        "answer_tokens": len(chunks_s),
    }
    return RequestOutcome(arrival_s=arrival_s, **(made | fields))


def step(outcomes: list[RequestOutcome], rate_per_s: float | None = 1.0, seconds: float = 60.0) -> Step:
    """A step that was not interrupted."""
    return Step(rate_per_s=rate_per_s, seconds=seconds, planned=len(outcomes), outcomes=outcomes)
