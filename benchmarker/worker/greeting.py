"""How rank 0 of a gang tells the other ranks from strangers: whoever connects shows a token, and its number.

All that connect are heard side by side, each until its own deadline, so that strangers delay nobody.
"""

from __future__ import annotations

import secrets
import selectors
import socket
import time
from dataclasses import dataclass

HELLO_S = 10.0
"""Time in which a process that connects must have shown the token and its number."""
HELLO_BYTES = 100
"""Longest greeting."""
STRANGERS = 256
"""Most that wait at the same time beside the ranks; then the one that has waited longest is refused."""


def greeting(token: str, rank: int) -> bytes:
    """Return what a rank sends to rank 0 first."""
    return f"{token} {rank}\n".encode()


def greeted(server: socket.socket, ranks: int, token: str) -> dict[int, socket.socket]:
    """Wait until all other ranks of a gang have greeted; returns their connections, by rank.

    A number that is no rank's, or of one that is there already, is refused as a wrong token is, and the wait goes on.
    """
    door = _Door(server, ranks, token)
    try:
        while len(door.found) < ranks - 1:
            door.wait()
    finally:
        door.close()
    return dict(sorted(door.found.items()))


@dataclass
class _Guest:
    """A process that has connected: until when it is heard, and what it has said so far."""

    deadline_s: float
    said: bytes = b""


class _Door:
    """The port of rank 0; `found` are the ranks that have greeted."""

    def __init__(self, server: socket.socket, ranks: int, token: str) -> None:
        self.found: dict[int, socket.socket] = {}
        self._server, self._ranks, self._token = server, ranks, token
        self._guests: dict[socket.socket, _Guest] = {}  # the one that has waited longest is the first
        self._selector = selectors.DefaultSelector()
        self._selector.register(server, selectors.EVENT_READ)
        server.setblocking(False)

    def wait(self) -> None:
        """Hear whoever is next to say something, or refuse those whose time is up."""
        first = next(iter(self._guests.values()), None)
        left_s = None if first is None else max(0.0, first.deadline_s - time.monotonic())
        for key, _ in self._selector.select(left_s):
            if key.fileobj is self._server:
                self._admit()
            elif isinstance(key.fileobj, socket.socket) and key.fileobj in self._guests:
                self._hear(key.fileobj)
        now = time.monotonic()
        for connection in [each for each, guest in self._guests.items() if guest.deadline_s <= now]:
            self._refuse(connection)

    def close(self) -> None:
        """Refuse all that are still waiting."""
        for connection in list(self._guests):
            self._refuse(connection)
        self._selector.close()

    def _admit(self) -> None:
        if len(self._guests) >= self._ranks + STRANGERS:
            self._refuse(next(iter(self._guests)))
        try:
            connection, _ = self._server.accept()
        except (BlockingIOError, ConnectionAbortedError):  # it has gone again
            return
        except OSError:  # no more files may be open
            if not self._guests:
                raise
            self._refuse(next(iter(self._guests)))
            return
        connection.setblocking(False)
        self._guests[connection] = _Guest(time.monotonic() + HELLO_S)
        self._selector.register(connection, selectors.EVENT_READ)

    def _hear(self, connection: socket.socket) -> None:
        guest = self._guests[connection]
        try:
            chunk = connection.recv(HELLO_BYTES)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        guest.said += chunk
        line, end, more = guest.said.partition(b"\n")
        if chunk and not end and len(line) < HELLO_BYTES:
            return
        rank = self._rank(line) if end and not more else None
        if rank is None:
            self._refuse(connection)
        else:
            self._forget(connection)
            connection.setblocking(True)
            self.found[rank] = connection

    def _rank(self, line: bytes) -> int | None:
        """Return the rank that a greeting is from, None if it is not that of one that is missing."""
        token, _, number = line.partition(b" ")
        if not secrets.compare_digest(token, self._token.encode()) or not number.isdigit():
            return None
        rank = int(number)
        return rank if 0 < rank < self._ranks and rank not in self.found else None

    def _refuse(self, connection: socket.socket) -> None:
        self._forget(connection)
        connection.close()

    def _forget(self, connection: socket.socket) -> None:
        del self._guests[connection]
        self._selector.unregister(connection)
