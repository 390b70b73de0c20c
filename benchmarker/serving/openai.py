"""A client of servers with OpenAI's completions API: answers are streamed as server-sent events.

aiohttp reads HTTP, because its parser is compiled: a client that takes longer for a token than the server would measure
itself. Every request opens its own connection, as another user's would.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Literal, TypeVar
from urllib.parse import urlsplit

import aiohttp
import msgspec
import numpy as np
from msgspec import Meta, Raw, Struct

from benchmarker.api.errors import UserError
from benchmarker.api.fields import Count
from benchmarker.formatting import clean, one_line, shortened
from benchmarker.records.load import RequestOutcome
from benchmarker.serving.arrivals import Request
from benchmarker.serving.open_loop import RequestError, Usage, drive
from benchmarker.serving.session import Send

_T = TypeVar("_T")
PromptKind = Literal["ids", "words"]
IDS = (1_000, 10_000)
"""Range of the token ids of prompts: text in common vocabularies, whose special tokens are first or last."""
_WORDS = (
    "air art bed book box boy car city day dog door end eye face fire fish food game girl hand head hill home horse "
    "house ice job king land law life light line man map moon name night oil page park part plan rain river road rock "
    "room salt sea ship song star stone sun team time town tree wall war water way week wind wood word work year"
)
"""Common words; each is one token in common vocabularies."""
MESSAGE = 200
"""Longest text of a server that is kept, in characters."""
LONGEST = 2**18
"""Most bytes of an event, or of a body that is no stream: some 50,000 tokens of text, or 1,000 models."""
CHUNKS_PER_TOKEN = 16
"""Most chunks with text for each requested token: not even one for each character of long words is more."""
MODELS_S = 30.0
"""Time in which a server must have listed its models."""


class _Choice(Struct):
    text: str = ""
    finish_reason: str | None = None


class _Usage(Struct):
    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None


class _Event(Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Raw = Raw(b"null")


class _Model(Struct):
    id: Annotated[str, Meta(min_length=1, max_length=500)]


class _Models(Struct):
    data: list[_Model]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server's address, up to `/v1`, and how it is asked.

    Prompts are random, so that no cache of prefixes answers them: token ids, which have an exact length, or words for
    servers that accept only text. With `ignore_eos` the server is asked to generate all tokens (vLLM, SGLang and
    llama.cpp know this extension).
    """

    url: str
    model: str
    prompts: PromptKind = "ids"
    ignore_eos: bool = True


def base_url(text: str) -> str:
    """Return the address of an endpoint up to its version, `/v1` if it has no path; raises `UserError`."""
    try:
        parts = urlsplit(text)
        known = parts.scheme in ("http", "https") and parts.hostname is not None and parts.port != 0
        (parts.hostname or "").encode("idna")  # as the resolver will
    except ValueError:
        known = False
    if not known or parts.query or parts.fragment:
        raise UserError(f"--endpoint={text} is no address of a server; write http://127.0.0.1:8000/v1")
    path = parts.path.rstrip("/").removesuffix("/completions")
    return f"{parts.scheme}://{parts.netloc}{path or '/v1'}"


async def only_model(url: str) -> str:
    """Return the name of the model that a server offers; raises `UserError` if it does not offer exactly one."""
    try:
        async with (
            asyncio.timeout(MODELS_S),
            _session() as session,
            _answered(session.get(f"{url}/models")) as response,
        ):
            content = await _beginning(response, LONGEST)
        if len(content) > LONGEST:
            raise RequestError("invalid", f"the answer is longer than {LONGEST >> 10} KiB")
        names = [model.id for model in _decoded(content, _Models).data]
    except RequestError as error:
        if error.kind == "refused":
            raise UserError(_unreachable(url, str(error))) from error
        raise UserError(f"{url}/models does not list the models: {error}; name one with --model") from error
    except TimeoutError as error:
        raise UserError(f"{url}/models does not answer within {MODELS_S:g} s; name a model with --model") from error
    if len(names) != 1:
        raise UserError(f"{url} offers {_said(', '.join(names)) or 'no model'}; name one with --model")
    return names[0]


async def try_out(endpoint: Endpoint, request: Request, timeout_s: float) -> None:
    """Send one request that is not measured, and wait for its answer; raises `UserError` if that fails.

    What a server does only once, for its first request, is then done.
    """
    try:
        async with asyncio.timeout(timeout_s), connected(endpoint) as server:
            await server.answer(request, lambda _: None)
    except RequestError as error:
        if error.kind == "refused":
            raise UserError(_unreachable(endpoint.url, str(error))) from error
        raise UserError(f"{endpoint.url} does not answer a request: {error}") from error
    except TimeoutError as error:
        raise UserError(f"{endpoint.url} does not answer within {timeout_s:g} s; raise --timeout") from error


def over_http(endpoint: Endpoint, timeout_s: float) -> Send:
    """Return what sends requests to an endpoint."""

    def send(requests: Sequence[Request], done: Callable[[RequestOutcome], None]) -> None:
        async def run() -> None:
            async with connected(endpoint) as server:
                await drive(server, requests, timeout_s, done)

        asyncio.run(run())

    return send


@asynccontextmanager
async def connected(endpoint: Endpoint) -> AsyncIterator[Client]:
    """Open what connections need in the running event loop, and close it, with all connections, at the end.

    From then on, this process may open as many files as the system allows it: a connection is one.
    """
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    async with _session() as session:
        yield Client(endpoint, session)


@dataclass(frozen=True, slots=True)
class Client:
    """A `Server` behind an endpoint."""

    endpoint: Endpoint
    session: aiohttp.ClientSession

    async def answer(self, request: Request, token: Callable[[float], None]) -> Usage:
        """Answer a request; see `Server`."""
        asked = self.session.post(
            f"{self.endpoint.url}/completions",
            data=_body(self.endpoint, request),
            headers={"Content-Type": "application/json", "Accept": "text/event-stream"},
        )
        async with _answered(asked) as response:
            kind = response.headers.get("Content-Type", "of no type")
            if kind.partition(";")[0].strip().lower() != "text/event-stream":
                raise RequestError("invalid", f"the answer is {_said(kind)}, not a stream of events")
            return await _read(response.content, token, CHUNKS_PER_TOKEN * request.new_tokens)


@asynccontextmanager
async def _answered(
    asked: AbstractAsyncContextManager[aiohttp.ClientResponse],
) -> AsyncIterator[aiohttp.ClientResponse]:
    """Yield the response to what was asked; raises `RequestError` for all that goes wrong until it has been read."""
    try:
        async with asked as response:
            if response.status != 200:
                raise RequestError(
                    "status", f"HTTP {response.status}: {_quoted(await _beginning(response, 4 * MESSAGE))}"
                )
            encoding = response.headers.get("Content-Encoding", "identity")
            if encoding.lower() != "identity":  # a few KiB could decode to GiB
                raise RequestError("invalid", f"the answer is compressed ({_said(encoding)}), which was not asked for")
            yield response
    except aiohttp.ClientConnectorError as error:
        raise RequestError("refused", _reason(error)) from error
    except TimeoutError:  # an OSError too
        raise
    except (aiohttp.ServerDisconnectedError, aiohttp.ClientPayloadError, OSError) as error:
        raise RequestError("cut", "the connection ended before the answer did") from error
    except aiohttp.ClientError as error:
        raise RequestError("invalid", _reason(error)) from error


async def _beginning(response: aiohttp.ClientResponse, most: int) -> bytes:
    """Return a body; of one that is longer than `most` bytes, only a beginning that is longer too."""
    content = bytearray()
    async for data in response.content.iter_any():
        content += data
        if len(content) > most:
            break
    return bytes(content)


async def _read(stream: aiohttp.StreamReader, token: Callable[[float], None], most: int) -> Usage:
    """Read events until the last; all tokens that one read returns arrived together.

    Raises `RequestError`, also for an endless event, and for more than `most` chunks with text.
    """
    loop = asyncio.get_running_loop()
    usage, is_finished, rest, chunks = Usage(), False, b"", 0
    async for data in stream.iter_any():
        now = loop.time()
        *lines, rest = (rest + data).split(b"\n")
        if max(map(len, (*lines, rest))) > LONGEST:
            raise RequestError("invalid", f"an event is longer than {LONGEST >> 10} KiB")
        for line in lines:
            if not line.startswith(b"data:"):
                continue
            payload = line[5:].strip()
            if payload == b"[DONE]":
                return usage
            event = _event(payload)
            if event.usage:
                usage = Usage(event.usage.prompt_tokens, event.usage.completion_tokens)
            if any(choice.text for choice in event.choices):
                chunks += 1
                if chunks > most:
                    raise RequestError("invalid", f"more than {CHUNKS_PER_TOKEN} chunks for each requested token")
                token(now)
            is_finished |= any(choice.finish_reason is not None for choice in event.choices)
    if not is_finished:
        raise RequestError("cut", "the connection ended before the answer did")
    return usage


def _event(payload: bytes) -> _Event:
    event = _decoded(payload, _Event)
    if event.error != Raw(b"null"):
        raise RequestError("invalid", f"an error instead of a token: {_quoted(payload)}")
    return event


def _decoded(content: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError("invalid", f"the answer is not as expected: {error}: {_quoted(content)}") from error


def _body(endpoint: Endpoint, request: Request) -> bytes:
    rng = np.random.default_rng()  # never the same prompt again, also not in another run
    prompt: list[int] | str
    if endpoint.prompts == "ids":
        prompt = rng.integers(*IDS, request.prompt_len).tolist()
    else:
        prompt = " ".join(rng.choice(_WORDS.split(), request.prompt_len))
    body = {
        "model": endpoint.model,
        "prompt": prompt,
        "max_tokens": request.new_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return msgspec.json.encode(body | {"ignore_eos": True} if endpoint.ignore_eos else body)


def _session() -> aiohttp.ClientSession:
    """Return a session without a limit of connections: one would make requests wait for the answers of others.

    Whoever uses it sets a deadline. It keeps no cookies, which a server could pile up, and decompresses nothing.
    """
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, force_close=True),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
        headers={"Accept-Encoding": "identity"},
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
    )


def _unreachable(url: str, reason: str) -> str:
    return f"no server answers at {url}: {reason}; start one there, or name another with --endpoint"


def _reason(error: BaseException) -> str:
    """Return what the system said of an error, without the words of the library."""
    inner = getattr(error, "os_error", error)
    return _said(getattr(inner, "strerror", None) or str(inner)) or type(error).__name__


def _quoted(content: bytes) -> str:
    return _said(content[: 4 * MESSAGE].decode(errors="replace")) or "no text"


def _said(text: str) -> str:
    """Return a server's text in at most MESSAGE characters, without line breaks and control characters."""
    return shortened(clean(one_line(text)), MESSAGE)
