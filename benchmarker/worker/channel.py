"""How the ranks of a process group are connected: each has a socket to rank 0, which asks for a token first.

Whoever connects to rank 0 shows the token, and its number. All that connect are read side by side, each until its own
deadline, so that strangers delay nobody.
"""

import secrets
import selectors
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedRWPair
from typing import Any

import msgspec

from benchmarker.worker.protocol import Address

LOOPBACK = "127.0.0.1"
_DISCARD = 9
"""A port; nothing is sent to it."""
TOKEN_S = 10.0
"""Time in which a process that connects must have shown the token and its number."""
TOKEN_BYTES = 100
"""Longest greeting."""
STRANGERS = 256
"""Most that wait at the same time beside the ranks; then the one that has waited longest is refused."""


class LostPeerError(ConnectionError):
    """Another rank has closed its connection."""


class Channel:
    """The connections of a rank: rank 0 has one to every other, the others have one to rank 0."""

    def __init__(self, rank: int, ranks: int, host: str, own_host: str, files: dict[int, BufferedRWPair]) -> None:
        self.rank = rank
        self.local_rank = rank
        self.ranks = ranks
        self.own_host = own_host
        self.host = host
        self._files = files
        self._waits = False

    def waits(self) -> bool:
        """Whether this rank waits for another."""
        return self._waits

    def close(self) -> None:
        """Close all connections."""
        for file in self._files.values():
            file.close()

    def send(self, value: Any) -> None:
        """Send a value to all ranks that this one is connected to; raises LostPeerError."""
        line = msgspec.json.encode(value) + b"\n"
        for rank, file in self._files.items():
            try:
                file.write(line)
                file.flush()
            except OSError as error:
                raise _lost(rank) from error

    def receive(self, rank: int) -> Any:
        """Wait for the next value of a rank; raises LostPeerError."""
        self._waits = True
        try:
            line = self._files[rank].readline()
        except OSError as error:
            raise _lost(rank) from error
        self._waits = False
        if not line:
            raise _lost(rank)
        return msgspec.json.decode(line)

    def drain(self) -> None:
        """Wait until all ranks that this one is connected to have ended, and ignore what they still send."""
        for file in self._files.values():
            with suppress(OSError):
                file.read()

    def broadcast(self, value: Any) -> Any:
        """Return at every rank the value that rank 0 gives; raises LostPeerError."""
        if self.rank:
            return self.receive(0)
        self.send(value)
        return value


def alone() -> Channel:
    """Return the channel of a process that computes a case alone: it has no connections."""
    return Channel(0, 1, LOOPBACK, LOOPBACK, {})


def _lost(rank: int) -> LostPeerError:
    return LostPeerError(f"rank {rank} has closed its connection")


def listen_for_ranks(ranks: int, publish: Callable[[str, int, str], None], peer_address: str = "") -> Channel:
    """Bind a port, publish its host and number and a token, and wait until all other ranks are connected.

    Only this machine reaches the port, unless `peer_address` is the address of another node, which has ranks too.
    """
    token = secrets.token_hex(16)
    host = _own_host(peer_address) if peer_address else LOOPBACK
    with socket.create_server((host, 0), family=_family(host), backlog=ranks + STRANGERS) as server:
        publish(host, server.getsockname()[1], token)
        connections = accept_ranks(server, ranks, token)
    return Channel(0, ranks, host, host, {rank: _opened(connection) for rank, connection in connections.items()})


def _own_host(peer_address: str) -> str:
    """Return this machine's own address, as that peer reaches it; nothing is sent."""
    family, _, _, _, peer = socket.getaddrinfo(peer_address, _DISCARD, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(peer)
        return str(probe.getsockname()[0])


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def connect_to_rank_0(rank: int, ranks: int, address: Address) -> Channel:
    """Connect to rank 0."""
    connection = socket.create_connection((address.host, address.port))
    own_host = connection.getsockname()[0]
    file = _opened(connection)
    file.write(greeting(address.token, rank))
    file.flush()
    return Channel(rank, ranks, address.host, own_host, {0: file})


def _opened(connection: socket.socket) -> BufferedRWPair:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with connection:  # the file keeps it open
        return connection.makefile("rwb")


def greeting(token: str, rank: int) -> bytes:
    """Return what a rank sends to rank 0 first."""
    return f"{token} {rank}\n".encode()


def accept_ranks(server: socket.socket, ranks: int, token: str) -> dict[int, socket.socket]:
    """Wait until all other ranks have shown the token; returns their connections, by rank.

    A number that is no rank's, or of one that is there already, is refused as a wrong token is, and the wait goes on.
    """
    acceptor = _Acceptor(server, ranks, token)
    try:
        while len(acceptor.accepted) < ranks - 1:
            acceptor.wait()
    finally:
        acceptor.close()
    return dict(sorted(acceptor.accepted.items()))


@dataclass
class _Pending:
    """A connection that has not shown the token yet: until when it may, and what it has sent so far."""

    deadline_s: float
    received: bytes = b""


class _Acceptor:
    """Accepts connections at the port of rank 0; `accepted` are those of the ranks that have shown the token."""

    def __init__(self, server: socket.socket, ranks: int, token: str) -> None:
        self.accepted: dict[int, socket.socket] = {}
        self._server, self._ranks, self._token = server, ranks, token
        self._pending: dict[socket.socket, _Pending] = {}  # the one that has waited longest is the first
        self._selector = selectors.DefaultSelector()
        self._selector.register(server, selectors.EVENT_READ)
        server.setblocking(False)

    def wait(self) -> None:
        """Read from whoever sends next, or refuse those whose time is up."""
        first = next(iter(self._pending.values()), None)
        left_s = None if first is None else max(0.0, first.deadline_s - time.monotonic())
        for key, _ in self._selector.select(left_s):
            if key.fileobj is self._server:
                self._accept()
            elif isinstance(key.fileobj, socket.socket) and key.fileobj in self._pending:
                self._read(key.fileobj)
        now = time.monotonic()
        for connection in [late for late, pending in self._pending.items() if pending.deadline_s <= now]:
            self._refuse(connection)

    def close(self) -> None:
        """Refuse all that are still waiting."""
        for connection in list(self._pending):
            self._refuse(connection)
        self._selector.close()

    def _accept(self) -> None:
        if len(self._pending) >= self._ranks + STRANGERS:
            self._refuse(next(iter(self._pending)))
        try:
            connection, _ = self._server.accept()
        except (BlockingIOError, ConnectionAbortedError):  # it has gone again
            return
        except OSError:  # no more files may be open
            if not self._pending:
                raise
            self._refuse(next(iter(self._pending)))
            return
        connection.setblocking(False)
        self._pending[connection] = _Pending(time.monotonic() + TOKEN_S)
        self._selector.register(connection, selectors.EVENT_READ)

    def _read(self, connection: socket.socket) -> None:
        pending = self._pending[connection]
        try:
            chunk = connection.recv(TOKEN_BYTES)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        pending.received += chunk
        line, end, more = pending.received.partition(b"\n")
        if chunk and not end and len(line) < TOKEN_BYTES:
            return
        rank = self._rank(line) if end and not more else None
        if rank is None:
            self._refuse(connection)
        else:
            self._forget(connection)
            connection.setblocking(True)
            self.accepted[rank] = connection

    def _rank(self, line: bytes) -> int | None:
        """Return the rank that a greeting is from, None if it is not that of one that is missing."""
        token, _, number = line.partition(b" ")
        if not secrets.compare_digest(token, self._token.encode()) or not number.isdigit():
            return None
        rank = int(number)
        return rank if 0 < rank < self._ranks and rank not in self.accepted else None

    def _refuse(self, connection: socket.socket) -> None:
        self._forget(connection)
        connection.close()

    def _forget(self, connection: socket.socket) -> None:
        del self._pending[connection]
        self._selector.unregister(connection)
