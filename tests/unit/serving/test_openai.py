"""What the client makes of an address and of a stream of events, however it is cut into pieces."""

import asyncio

import pytest

from benchmarker.api.errors import UserError
from benchmarker.serving.open_loop import RequestError, Usage
from benchmarker.serving.openai import _read, base_url

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
    return asyncio.run(_read(Pieces(*pieces), times.append)), times


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
    ],
)
def test_a_stream_without_a_whole_answer_is_a_failure(stream, kind, words):
    with pytest.raises(RequestError, match=words) as caught:
        read(stream)
    assert caught.value.kind == kind


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
    "text", ["127.0.0.1:8000", "", "ftp://a", "http://", "http://a:port", "http://a?b=1", "http://a:0"]
)
def test_what_is_no_address_is_refused(text):
    with pytest.raises(UserError, match="is no address of a server; write http:"):
        base_url(text)
