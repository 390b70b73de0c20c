"""The agent of a node: it starts the ranks of a gang on this node, and passes on what they and the parent tell.

It tells where it runs, is told what to start, and ends when all ranks have ended, or when the parent closes its
standard input: then it ends all ranks, and what they started.
"""

from __future__ import annotations

import math
import os
import signal
import threading
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from benchmarker.agent.messages import Begin, FromRank, Here, ToRank
from benchmarker.api.errors import TerminatedError, terminate
from benchmarker.machine import description, gpus
from benchmarker.machine.software import installed
from benchmarker.worker.launch import environment_of, started
from benchmarker.worker.pipes import listen
from benchmarker.worker.protocol import lines

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from benchmarker.worker.launch import Event, Worker


def main() -> None:
    """Start the ranks that standard input names, and stay until they have ended."""
    output = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent's terminal is not this agent's: the parent ends it
    signal.signal(signal.SIGTERM, terminate)
    told = lines(0)
    with suppress(TerminatedError):
        _send(output, Here(description.describe(), installed()))
        if line := next(told, b""):
            _run(msgspec.json.decode(line, type=Begin), told, output)
    os._exit(0)  # a thread may still read


def _run(begin: Begin, told: Iterator[bytes], output: BinaryIO) -> None:
    """Run the ranks to their ends."""
    (case, *_) = begin.requests[0].cases
    shown = gpus.environment(case.gpu, os.environ, case.devices // case.nodes)
    ranks: dict[int, Worker] = {}
    reported: set[int] = set()

    def hear(rank: int, event: Event) -> None:
        _send(output, FromRank(rank=rank, event=dict(event)))

    def report() -> bool:
        """Tell which ranks have ended or failed since the last look; never enough."""
        for rank, worker in ranks.items():
            if rank not in reported and (worker.fault or worker.status is not None):
                reported.add(rank)
                _send(output, FromRank(rank=rank, fault=worker.fault, status=worker.status))
        return False

    with ExitStack() as stack:
        for request, log in zip(begin.requests, begin.logs, strict=True):
            environment = environment_of(case, request.rank - begin.requests[0].rank, shown)
            heard = partial(hear, request.rank)
            ranks[request.rank] = stack.enter_context(started(request, environment, Path(log), heard))
        threading.Thread(target=_pass_on, args=(told, ranks), daemon=True).start()
        listen(list(ranks.values()), math.inf, report)
        report()


def _pass_on(told: Iterator[bytes], ranks: dict[int, Worker]) -> None:
    """Pass on to the ranks what the parent tells; when it tells nothing any more, end this process in order."""
    for line in told:
        to = msgspec.json.decode(line, type=ToRank)
        if to.told:
            ranks[to.rank].send(to.told)
        if to.terminate:
            ranks[to.rank].terminate()
    os.kill(os.getpid(), signal.SIGTERM)


def _send(output: BinaryIO, message: msgspec.Struct) -> None:
    """Send a line; if nobody reads any more, this process is to end."""
    try:
        rest = memoryview(msgspec.json.encode(message) + b"\n")
        while rest:
            rest = rest[output.write(rest) :]
    except BrokenPipeError:
        raise TerminatedError from None


if __name__ == "__main__":
    main()
