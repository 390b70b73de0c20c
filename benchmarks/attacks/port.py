"""Strangers at the port of a group of ranks: none is taken for a rank, or told anything, and none delays the ranks."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
import time

from tally import Tally

from benchmarker.worker import channel
from benchmarker.worker.protocol import Address

RANKS = 4
SOON_S = 5.0
"""Time in which all ranks must be there; a stranger that says nothing is heard for 10 s."""
SAID = {
    "silent": b"",
    "wrong token": b"%032d 1\n" % 0,
    "only the token": b"TOKEN\n",
    "wrong rank": b"TOKEN %d\n" % RANKS,
    "rank 0": b"TOKEN 0\n",
    "negative rank": b"TOKEN -1\n",
    "huge rank": b"TOKEN " + b"9" * 60 + b"\n",
    "no number": b"TOKEN \xd9\xa1\n",
    "half a greeting": b"TOKEN",
    "more than a greeting": b"TOKEN 1\n[]\n",
    "long": b"x" * 100_000,
    "no UTF-8": b"\xff" * 50 + b"\n",
    "HTTP": b"GET / HTTP/1.1\r\n\r\n",
}
KINDS = [*SAID, "forty silent", "dripping", "reset"]


def attacks(count: int, rng: random.Random) -> Tally:
    """Let strangers come before, between and after the ranks of a process group, so many times."""
    tally = Tally()
    for _ in range(count):
        strike([rng.choice(KINDS) for _ in range(rng.randint(1, 6))], rng, tally)
    return tally


def strike(kinds: list[str], rng: random.Random, tally: Tally) -> None:
    """Let strangers of these kinds come to a process group."""
    tally.attacks += 1
    addresses: list[Address] = []
    led: list[channel.Channel] = []
    published = threading.Event()

    def publish(host: str, port: int, token: str) -> None:
        addresses.append(Address(host, port, token))
        published.set()

    def lead() -> None:
        try:
            led.append(channel.listen_for_ranks(RANKS, publish))
        except BaseException as error:  # noqa: BLE001 - whatever it is, the trial would fail
            tally.bad("traceback", f"{kinds}: {error!r}")

    thread = threading.Thread(target=lead, daemon=True)
    thread.start()
    published.wait()
    (address,) = addresses
    followers: dict[int, channel.Channel] = {}
    arrivals: list[str | int] = [*kinds, *range(1, RANKS)]
    rng.shuffle(arrivals)
    with contextlib.ExitStack() as stack:
        strangers: list[socket.socket] = []
        began_s = time.monotonic()
        for arrival in arrivals:
            if isinstance(arrival, str):
                with contextlib.suppress(ConnectionError):  # all ranks are there, and the port is closed
                    strangers += come(arrival, address, stack)
                continue
            try:
                followers[arrival] = channel.connect_to_rank_0(arrival, RANKS, address)
            except OSError as error:
                tally.bad("lost", f"{kinds}: rank {arrival}: {error}")
                return
            stack.callback(followers[arrival].close)
        thread.join(SOON_S)
        if not led:
            tally.bad("hang", f"{kinds}: not all ranks are there after {time.monotonic() - began_s:.1f} s")
            return
        stack.callback(led[0].close)
        if told := talk(led[0], followers, strangers):
            tally.bad("injection", f"{kinds}: {told}")


def come(kind: str, address: Address, stack: contextlib.ExitStack) -> list[socket.socket]:
    """Connect as strangers of a kind, which stay until the stack ends."""
    made = []
    for _ in range(40 if kind == "forty silent" else 1):
        made.append(socket.create_connection((address.host, address.port)))
        stack.callback(made[-1].close)
    with contextlib.suppress(ConnectionError):
        made[0].sendall(SAID.get(kind, b"").replace(b"TOKEN", address.token.encode()))
    if kind == "dripping":
        ended = threading.Event()
        stack.callback(ended.set)
        threading.Thread(target=drip, args=(made[0], ended), daemon=True).start()
    if kind == "reset":
        made[0].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        made.pop().close()
    return made


def drip(connection: socket.socket, ended: threading.Event) -> None:
    """Say a letter every 50 ms."""
    with contextlib.suppress(OSError):
        while not ended.wait(0.05):
            connection.sendall(b"x")


def talk(leader: channel.Channel, followers: dict[int, channel.Channel], strangers: list[socket.socket]) -> str:
    """Let the ranks talk; return what is wrong with what they, and the strangers, heard."""
    leader.send("all")
    for rank, follower in followers.items():
        follower.send(rank)
        if (heard := follower.receive(0)) != "all":
            return f"rank {rank} heard {heard!r}"
    if (heard := [leader.receive(rank) for rank in range(1, RANKS)]) != [*range(1, RANKS)]:
        return f"rank 0 heard {heard}"
    for connection in strangers:
        connection.setblocking(False)
        with contextlib.suppress(OSError):
            if heard := connection.recv(100):
                return f"a stranger heard {heard!r}"
    return ""
