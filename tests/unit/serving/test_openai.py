"""What the client makes of an address, of a list of models and of a stream of events, whatever a server sends."""

import asyncio
import gzip
import itertools
import json
import time

import pytest
from support.raw_server import END, HEAD, TOKEN, answering

from benchmarker.api.errors import UserError
from benchmarker.serving import openai
from benchmarker.serving.arrivals import Request
from benchmarker.serving.open_loop import RequestError, Usage
from benchmarker.serving.openai import CHUNKS_PER_TOKEN, LONGEST, Endpoint, _read, base_url, only_model, try_out

STREAM = (
    b": hello\n\n"
    b'data: {"choices": [{"text": "", "finish_reason": null}]}\r\n\r\n'
    b'data: {"choices": [{"text": " one", "finish_reason": null}], "usage": null}\n\n'
    b'data:{"choices":[{"text":" two","finish_reason":"length"}]}\n\n'
    b'data: {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 3}}\n\n'
    b"data: [DONE]\n\n"
)


class Pieces:
    """A stream that comes in pieces."""

    def __init__(self, *pieces):
        self.pieces = pieces

    async def iter_any(self):
        for each in self.pieces:
            yield each


def read(*pieces):
    times = []
    return asyncio.run(_read(Pieces(*pieces), times.append, 3 * CHUNKS_PER_TOKEN)), times


@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
def test_events_are_read_wherever_they_are_split(size):
    usage, times = read(*(STREAM[at : at + size] for at in range(0, len(STREAM), size)))
    assert usage == Usage(5, 3)
    assert len(times) == 2
    assert times == sorted(times)


def test_tokens_that_arrive_together_have_one_time():
    assert len(set(read(STREAM)[1])) == 1


def test_an_answer_that_is_finished_needs_no_last_event():
    assert read(STREAM.partition(b'data: {"choices": []')[0])[0] == Usage(None, None)


@pytest.mark.parametrize(
    ("stream", "kind", "words"),
    [
        (STREAM.partition(b"data:{")[0], "cut", "ended before the answer did"),
        (b"", "cut", "ended before the answer did"),
        (b'data: {"choices": 5}\n', "invalid", "not as expected: Expected `array`.*: {"),
        (b"data: hello\n", "invalid", "not as expected: .*: hello"),
        (b'data: {"error": {"message": "out of memory"}}\n', "invalid", "an error instead of a token: .*out of memory"),
        (b'data: {"choices": [{"text": "\xff"}]}\n', "invalid", "not as expected: 'utf-8' codec"),
        (b"data: " + b"[" * 10_000 + b"\n", "invalid", "not as expected: "),
        (b"data: " + b" " * LONGEST + b"\n", "invalid", "an event is longer than 256 KiB"),
        (b"x" * LONGEST + b"x", "invalid", "an event is longer than 256 KiB"),
        (TOKEN * (3 * CHUNKS_PER_TOKEN + 1), "invalid", "more than 16 chunks for each requested token"),
    ],
)
def test_a_stream_without_a_whole_answer_is_a_failure(stream, kind, words):
    with pytest.raises(RequestError, match=words) as caught:
        read(stream)
    assert caught.value.kind == kind


@pytest.mark.parametrize("name", ["prompt_tokens", "completion_tokens"])
@pytest.mark.parametrize(
    "figure", ["-5", str(2**63), str(10**400), "1" * 5000, "NaN", "1e400", "5.0", '"5"', "true", "[]"]
)
def test_a_count_that_no_load_can_hold_is_a_failure(name, figure):
    with pytest.raises(RequestError, match="not as expected: ") as caught:
        read(b'data: {"usage": {"%s": %s}}\n' % (name.encode(), figure.encode()) + STREAM)
    assert caught.value.kind == "invalid"
    assert len(str(caught.value)) < 400


def body(content, head="HTTP/1.1 200 OK\r\nContent-Type: application/json"):
    return [f"{head}\r\nConnection: close\r\n\r\n".encode("latin-1"), content]


def models(*names):
    return body(json.dumps({"data": [{"id": name} for name in names]}).encode())


BOMB = gzip.compress(b" " * 2**24)
FLOOD = [*models(), *[b" " * 2**20] * 64]
MANY_HEADERS = [b"HTTP/1.1 200 OK\r\n", *(b"X-%d: 1\r\n" % number for number in range(10_000))]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (FLOOD, "the answer is longer than 256 KiB"),
        (MANY_HEADERS, "headers"),
        (body(BOMB, "HTTP/1.1 200 OK\r\nContent-Encoding: gzip"), r"compressed \(gzip\), which was not asked for"),
        (body(b"\x1b[2J" * 1000, "HTTP/1.1 404 \xff\x1b[2J"), r"HTTP 404: \\x1b\[2J"),
        (body(b'{"data": [{"id": "\xff"}]}'), "not as expected: 'utf-8' codec"),
        (body(b'{"data": [{"id": "\\ud800"}]}'), "not as expected: "),
        (body(b"[" * 100_000), "not as expected: "),
        (body(b'{"data": null}'), "not as expected: Expected `array`, got `null`"),
        (models(""), "not as expected: Expected `str` of length >= 1"),
        (models("x" * 501), "not as expected: Expected `str` of length <= 500"),
        (models(*["\x1b[2J" * 50] * 100), r"offers \\x1b\[2J"),
        ([], "the connection ended before the answer did"),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"], "the connection ended before the answer did"),
        ([b"\x1b[2J\xff" * 100 + b"\r\n\r\n"], "does not list the models: "),
    ],
)
def test_a_list_of_models_that_is_none_is_refused_in_a_line(answer, words):
    with answering(lambda _: answer) as url, pytest.raises(UserError, match=words) as caught:
        asyncio.run(only_model(url))
    text = str(caught.value)
    assert text.endswith("; name one with --model")
    assert text.isprintable()
    assert len(text) < 500


def drip(parts):
    for part in parts:
        yield part
        time.sleep(0.02)


def test_the_time_to_list_the_models_ends_though_bytes_arrive(monkeypatch):
    monkeypatch.setattr(openai, "MODELS_S", 0.2)
    endless = itertools.chain(body(b'{"data"'), itertools.repeat(b" "))
    with answering(lambda _: drip(endless)) as url, pytest.raises(UserError, match=r"does not answer within 0\.2 s"):
        asyncio.run(asyncio.wait_for(only_model(url), 4.0))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ([b"HTTP/1.1 200 OK\r\nContent-Type: \x1b[2J\xff" + b"x" * 4000 + b"\r\n\r\n"], "not a stream of events"),
        ([HEAD + b"Content-Encoding: gzip\r\n\r\n", gzip.compress(TOKEN * 3 + END)], "which was not asked for"),
        (body(b"\x1b[2J" * 10_000, "HTTP/1.1 503 no"), r"HTTP 503: \\x1b\[2J"),
        ([HEAD + b"\r\n" + b'data: {"error": "\x9b\n'], "not as expected: "),
        ([HEAD + b"\r\n" + b'data: {"error": "\\u001b[2J"}\n'], "an error instead of a token"),
    ],
)
def test_an_answer_that_is_none_is_refused_in_a_line(answer, words):
    with answering(lambda _: answer) as url, pytest.raises(UserError, match=words) as caught:
        asyncio.run(try_out(Endpoint(url, "toy"), Request(0.0, 4, 3), 5.0))
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 500


def test_a_server_cannot_pile_up_cookies():
    cookies = b"".join(b"Set-Cookie: name%d=%s\r\n" % (number, b"x" * 1000) for number in range(10))

    async def kept(url):
        async with openai.connected(Endpoint(url, "toy")) as client:
            await client.answer(Request(0.0, 4, 3), str)
            return len(client.session.cookie_jar)

    with answering(lambda _: [HEAD + cookies + b"\r\n" + TOKEN + END]) as url:
        assert asyncio.run(kept(url.replace("127.0.0.1", "localhost"))) == 0  # addresses have no cookies anyway


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000/v1"),
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000/v1"),
        ("https://server.example/api/v1/", "https://server.example/api/v1"),
        ("http://[::1]:8000/v1/completions", "http://[::1]:8000/v1"),
    ],
)
def test_an_address_may_leave_its_version_out(text, url):
    assert base_url(text) == url


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1:8000",
        "",
        "ftp://a",
        "http://",
        "http://a:port",
        "http://a?b=1",
        "http://a:0",
        "http://a..b",
        f"http://{'a' * 64}",
    ],
)
def test_what_is_no_address_is_refused(text):
    with pytest.raises(UserError, match="is no address of a server; write http:"):
        base_url(text)
