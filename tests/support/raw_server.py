"""A server on the loopback interface that sends any bytes, and the bytes of a whole answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n"
TOKEN = b'data: {"choices": [{"text": " la"}]}\n\n'
END = b"data: [DONE]\n\n"
ANSWER = HEAD + b"\r\n" + TOKEN * 3 + END
"""A whole answer of three tokens."""


@contextmanager
def answering(answer: Callable[[bytes], Iterable[bytes]]) -> Iterator[str]:
    """A server that sends what `answer` returns for the first line of each request, raw; yields its address."""

    def serve(client: socket.socket) -> None:
        with client, client.makefile("rb") as request, suppress(OSError):
            first, length = request.readline(), 0
            while header := request.readline().strip():
                name, _, value = header.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
            request.read(length)
            for part in answer(first):
                client.sendall(part)

    def accept() -> None:
        with suppress(OSError):  # it was closed
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
