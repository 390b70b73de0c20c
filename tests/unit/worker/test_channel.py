"""The port of rank 0: strangers and wrong greetings delay nobody, and are refused."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from benchmarker.worker import channel
from benchmarker.worker.protocol import Address


class RankZero:
    """Rank 0 of three, which waits for the others in a thread."""

    def __init__(self) -> None:
        self.channels: list[channel.Channel] = []
        self._published: list[Address] = []
        told = threading.Event()

        def publish(host: str, port: int, token: str) -> None:
            self._published.append(Address(host, port, token))
            told.set()

        self.thread = threading.Thread(
            target=lambda: self.channels.append(channel.listen_for_ranks(3, publish)), daemon=True
        )
        self.thread.start()
        assert told.wait(10)
        (self.address,) = self._published

    def connect(self, greets: bytes = b"") -> socket.socket:
        """Connect, and say something."""
        connection = socket.create_connection((self.address.host, self.address.port), timeout=5)
        connection.sendall(greets)
        return connection


@pytest.fixture
def rank_0() -> Iterator[RankZero]:
    made = RankZero()
    yield made
    made.thread.join(10)
    for opened in made.channels:
        opened.close()


def ranks_join(rank_0: RankZero) -> float:
    """Let both ranks join; returns how long that took, s."""
    start = time.monotonic()
    others = [channel.connect_to_rank_0(rank, 3, rank_0.address) for rank in (2, 1)]
    rank_0.thread.join(10)
    took_s = time.monotonic() - start
    (own,) = rank_0.channels
    own.send("here")
    assert [other.receive(0) for other in others] == ["here", "here"]
    others[0].send("second")
    assert own.receive(2) == "second"
    for other in others:
        other.close()
    return took_s


def drip(connection: socket.socket, ended: threading.Event) -> None:
    """Say a letter every 20 ms."""
    while not ended.wait(0.02):
        try:
            connection.sendall(b"x")
        except OSError:
            return


def test_strangers_that_say_nothing_or_drip_delay_nobody(rank_0: RankZero) -> None:
    ended = threading.Event()
    with ExitStack() as stack:
        silent = [stack.enter_context(rank_0.connect()) for _ in range(40)]
        dripping = stack.enter_context(rank_0.connect())
        stack.callback(ended.set)
        threading.Thread(target=drip, args=(dripping, ended), daemon=True).start()
        assert ranks_join(rank_0) < 5  # at once; the strangers may take 10 s
        assert silent[0].recv(1) == b""


def test_the_time_of_a_greeting_is_that_of_all_of_it(rank_0: RankZero, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "TOKEN_S", 0.3)
    ended = threading.Event()
    with rank_0.connect() as dripping:
        threading.Thread(target=drip, args=(dripping, ended), daemon=True).start()
        start = time.monotonic()
        assert closed(dripping)
        assert 0.2 < time.monotonic() - start < 1.5  # at 20 ms a letter, 100 letters take 2 s
        ended.set()
    ranks_join(rank_0)


def closed(connection: socket.socket) -> bool:
    """Wait until the other side has closed a connection."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


WRONG = {
    "wrong token": b"open sesame 1\n",
    "no token": b" 1\n",
    "no number": b"TOKEN \n",
    "a word": b"TOKEN one\n",
    "rank 0": b"TOKEN 0\n",
    "too large a rank": b"TOKEN 3\n",
    "negative": b"TOKEN -1\n",
    "no UTF-8": b"\xff\xfe 1\n",
    "too long": b"x" * 1000,
    "more than a greeting": b"TOKEN 1\nmore",
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_greeting_is_refused_and_the_ranks_are_waited_for(rank_0: RankZero, kind: str) -> None:
    with rank_0.connect(WRONG[kind].replace(b"TOKEN", rank_0.address.token.encode())) as stranger:
        assert closed(stranger)
    ranks_join(rank_0)


def test_a_rank_that_is_there_already_is_refused(rank_0: RankZero) -> None:
    first = channel.connect_to_rank_0(1, 3, rank_0.address)
    time.sleep(0.1)
    with rank_0.connect(channel.greeting(rank_0.address.token, 1)) as second:
        assert closed(second)
    other = channel.connect_to_rank_0(2, 3, rank_0.address)
    rank_0.thread.join(10)
    rank_0.channels[0].send("here")
    assert (first.receive(0), other.receive(0)) == ("here", "here")
    first.close()
    other.close()


def test_a_greeting_may_come_in_pieces(rank_0: RankZero) -> None:
    text = channel.greeting(rank_0.address.token, 1)
    with rank_0.connect(text[:20]) as rank:
        time.sleep(0.05)
        rank.sendall(text[20:])
        other = channel.connect_to_rank_0(2, 3, rank_0.address)
        rank_0.thread.join(10)
        assert len(rank_0.channels) == 1
        other.close()


def test_of_too_many_strangers_those_that_have_waited_longest_are_refused(
    rank_0: RankZero, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "STRANGERS", 5)
    with ExitStack() as stack:
        silent = [stack.enter_context(rank_0.connect()) for _ in range(12)]
        assert closed(silent[0])
        assert ranks_join(rank_0) < 5
