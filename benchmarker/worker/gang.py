"""The worker's side of a gang: ranks that compute one case together, each in a process of its own.

Rank 0 leads. It measures as a lone process does, but whatever it does with the case, all ranks do: it sends the name
of a method of `Share`, calls it too, and collects the results. So rank 0 alone decides how many steps a block has and
when it is enough, and says so between the blocks, outside the timed part. By clocks of their own, ranks would take
unlike numbers of steps and wait for each other without end.

    rank 0   |- block 40 -|==== own 40 steps ====|-- collect --|     the block takes as long as
    rank 1           |========= own 40 steps ========|               the slowest of its ranks

The ranks talk through sockets of their own, not through the framework: what is measured carries no messages.
"""

from __future__ import annotations

import secrets
import socket
import time
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, get_type_hints

import msgspec

from benchmarker.records.record import Rank
from benchmarker.worker import timing
from benchmarker.worker.greeting import STRANGERS, greeted, greeting
from benchmarker.worker.share import Share, Solo

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from io import BufferedRWPair

    from benchmarker.power.window import Edges
    from benchmarker.records.record import Memory
    from benchmarker.worker.bench import Bench
    from benchmarker.worker.protocol import Address
    from benchmarker.worker.stages import Stages

LOOPBACK = "127.0.0.1"
_DISCARD = 9
"""A port; nothing is sent to it."""
_END = ""
"""Sent instead of the name of a method: the trial is over."""


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

    def outlast(self) -> None:
        """Wait until all ranks that this one is connected to have ended."""
        for file in self._files.values():
            with suppress(OSError):
                file.read()

    def tell(self, value: Any) -> Any:
        """Return at every rank the value that rank 0 gives; raises LostPeerError."""
        if self.rank:
            return self.receive(0)
        self.send(value)
        return value


def _lost(rank: int) -> LostPeerError:
    return LostPeerError(f"rank {rank} has closed its connection")


def lead(ranks: int, publish: Callable[[str, int, str], None], towards: str = "") -> Channel:
    """Bind a port, publish its host and number and a token, and wait until all other ranks are connected.

    Only this machine reaches the port, unless there are ranks `towards` the address of another node.
    """
    token = secrets.token_hex(16)
    host = _host_towards(towards) if towards else LOOPBACK
    with socket.create_server((host, 0), family=_family(host), backlog=ranks + STRANGERS) as server:
        publish(host, server.getsockname()[1], token)
        found = greeted(server, ranks, token)
    return Channel(0, ranks, host, host, {rank: _opened(connection) for rank, connection in found.items()})


def _host_towards(address: str) -> str:
    """Return this machine's own address on the way to another one; nothing is sent."""
    kind, _, _, _, to = socket.getaddrinfo(address, _DISCARD, type=socket.SOCK_DGRAM)[0]
    with socket.socket(kind, socket.SOCK_DGRAM) as way:
        way.connect(to)
        return str(way.getsockname()[0])


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def join(rank: int, ranks: int, address: Address) -> Channel:
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


class Leader(Solo):
    """A case that this process, rank 0, computes together with others; `blocks_ns` has their durations of each block.

    They are told the current stage, which their failures name.
    """

    def __init__(self, bench: Bench, channel: Channel, stages: Stages, edges: Edges) -> None:
        super().__init__(bench, edges)
        self._channel = channel
        self._stages = stages
        self.blocks_ns: list[list[int]] = []

    def all(self, name: str, *arguments: Any) -> list[Any]:
        """Call a method of every share; returns the results by rank. Raises LostPeerError."""
        self._channel.send([self._stages.current, name, arguments])
        own = getattr(self.share, name)(*arguments)
        others = [self._channel.receive(rank) for rank in range(1, self._channel.ranks)]
        return [own, *(msgspec.convert(other, _result(name)) for other in others)]

    def end(self) -> None:
        """Tell the others that the trial is over, and outlast them: a library may abort a process that loses rank 0."""
        self._channel.send([self._stages.current, _END, ()])
        self._channel.outlast()
        self._channel.close()

    @property
    def stepper(self) -> timing.Steps:
        """The step of all shares."""
        return _GangStepper(self)

    def ranks(self, memory: Sequence[Memory | None]) -> list[Rank]:
        """Return what is measured of each rank: its durations of the blocks, and its memory."""
        return [
            Rank(
                rank=number,
                node=number // self.bench.case.ranks_per_node,
                devices=[*self.bench.case.devices_of(number)],
                duration_ns=[block[number] for block in self.blocks_ns],
                memory=each,
            )
            for number, each in enumerate(memory)
        ]


class _GangStepper:
    """A step that all ranks take together; the slowest counts."""

    def __init__(self, leader: Leader) -> None:
        self._leader = leader

    def block(self, steps: int) -> int:
        """Run `steps` steps in all ranks; returns the longest of their durations in ns."""
        durations_ns: list[int] = self._leader.all("block", steps)
        self._leader.blocks_ns.append(durations_ns)
        return max(durations_ns)

    def sync_s(self) -> float:
        """The cost of waiting for results that are available, or of telling all ranks to begin if that is more, s."""
        begin_s = []
        for _ in range(timing.SYNCS):
            start = time.perf_counter()
            self._leader.all("nothing")
            begin_s.append(time.perf_counter() - start)
        sync_s: list[float] = self._leader.all("sync_s")
        return max(*sync_s, min(begin_s))


class Follower:
    """A case that this process computes together with others, as rank 0 says."""

    def __init__(self, bench: Bench, channel: Channel, edges: Edges) -> None:
        self.bench = bench
        self._channel = channel
        self._edges = edges

    def follow(self, stages: Stages) -> None:
        """Do what rank 0 says until it says that the trial is over; raises LostPeerError."""
        share = Share(self.bench, self._edges, self._channel.rank)
        while True:
            stages.current, name, arguments = self._channel.receive(0)
            if name == _END:
                return
            self._channel.send(getattr(share, name)(*arguments))


@cache
def _result(name: str) -> Any:
    """Return the type that a method of a share returns."""
    return get_type_hints(getattr(Share, name))["return"]
