"""The parent's side of a gang: start the ranks of this node, listen until all have ended, and find what failed.

Each rank is a worker with pipes of its own. Rank 0 binds a port and tells its address, which is passed on to the
others; from then on the ranks talk to each other (`worker.gang`). If one of them fails, the others usually fail
because of it, or wait for it without end: so failures are gathered for a moment, the likeliest cause is chosen among
them, and all ranks are ended.
"""

from __future__ import annotations

import math
import os
import signal
import time
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from benchmarker.machine import gpus
from benchmarker.worker.launch import GRACE_S, Ending, converse, listen, started
from benchmarker.worker.protocol import Address, Told

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from benchmarker.api.case import Case
    from benchmarker.worker.launch import Environment, Event, Worker
    from benchmarker.worker.protocol import Request

GATHER_S = 2.0
"""Time after the first failure in which others are heard: the first is seldom the cause."""
PLACES_S = 1.0
"""Time that the ranks are given after the timeout to tell where they are."""


def converse_with_ranks(
    request: Request, environment: Environment, timeout_s: float, logs: Sequence[Path], hear: Callable[[Event], None]
) -> Ending:
    """Run a worker to its end, or a gang, whose ranks have a log each, and pass on what it or rank 0 sends."""
    if len(logs) == 1:
        return converse(request, environment, timeout_s, logs[0], hear)
    return converse_with_gang(request, environment, timeout_s, logs, hear)


def converse_with_gang(
    request: Request, environment: Environment, timeout_s: float, logs: Sequence[Path], hear: Callable[[Event], None]
) -> Ending:
    """Run the ranks of a gang to their ends, each with its log, and pass on what rank 0 sends.

    If a rank fails, all are ended within seconds, and the likeliest cause is passed on or is in the ending that is
    returned. However this function ends, even by an interrupt, all ranks and what they started are ended too.
    """
    start = time.monotonic()
    gang: list[_Rank] = []
    with ExitStack() as stack:
        for number, log in enumerate(logs):
            rank = _Rank(number, hear if number == 0 else _ignore)
            of_rank = msgspec.structs.replace(request, rank=number, sensors=request.sensors if number == 0 else {})
            gang.append(rank)
            shown = environment_of(request.cases[0], number, environment)
            rank.worker = stack.enter_context(started(of_rank, shown, log, partial(_hear, rank, gang)))
        workers = [rank.worker for rank in gang]
        deadline = start + timeout_s
        ended = listen(workers, deadline, lambda: any(rank.has_failed() for rank in gang))
        timed_out = not ended and not any(rank.has_failed() for rank in gang)
        if timed_out:
            for rank in gang:
                rank.worker.send(Told(stacks=True))
            listen(workers, time.monotonic() + PLACES_S, lambda: all(rank.place for rank in gang))
        elif not ended:
            listen(workers, min(deadline, time.monotonic() + GATHER_S), lambda: all(rank.has_failed() for rank in gang))
        # What follows ends the others, which is no failure of theirs.
        failed = [rank for rank in gang if rank.has_failed()]
        exits = [rank.worker.process.poll() for rank in gang]
        if any(status is None for status in exits):
            for worker in workers:
                worker.process.terminate()
            listen(workers, time.monotonic() + GRACE_S, lambda: False)
    wall_s = time.monotonic() - start
    if timed_out:
        stuck, where = _where(gang)
        return Ending(gang[stuck or 0].worker.process.returncode, True, wall_s, rank=stuck, where=where)
    if not failed:
        return Ending(0, False, wall_s)
    cause = min(failed, key=lambda rank: (_likelihood(rank, exits[rank.number]), rank.failed_s))
    if cause.failure is not None:
        hear(_of_rank(cause.failure, cause.number))
    status = exits[cause.number]
    exit_status = cause.worker.process.returncode if status is None else status
    return Ending(exit_status, False, wall_s, cause.worker.fault, rank=cause.number)


def environment_of(case: Case, rank: int, environment: Environment) -> Environment:
    """Return the environment of a rank: it sees all GPUs of the gang, or its own if each computes by itself."""
    return (
        {**environment, **gpus.one_of(case.device, rank, {**os.environ, **environment})} if case.each else environment
    )


class _Rank:
    """What is known about a rank: its worker, whether it is done, its failure, and where it is."""

    worker: Worker

    def __init__(self, number: int, pass_on: Callable[[Event], None]) -> None:
        self.number = number
        self.pass_on = pass_on
        self.done = False
        self.failure: Event | None = None
        self.failed_s = math.inf
        self.place = ""
        self.waits = False

    def has_failed(self) -> bool:
        """Whether it has told of a failure, sent what is not valid, or ended before it was done; notes since when."""
        over = not self.done and self.worker.process.poll() is not None
        found = self.failure is not None or bool(self.worker.fault) or over
        if found:
            self.failed_s = min(self.failed_s, time.monotonic())
        return found


def _ignore(event: Event) -> None:
    """Pass on nothing."""


def _hear(rank: _Rank, gang: Sequence[_Rank], event: Event) -> None:
    """Process an event of a rank."""
    rank.done = rank.done or "done" in event
    if "failure" in event:
        rank.failure = rank.failure or event
    elif "place" in event:
        rank.place, rank.waits = event["place"], event["waits"]
    elif "address" in event:
        address = msgspec.convert(event["address"], Address)
        for other in gang[1:]:
            other.worker.send(Told(address=address))
    else:
        rank.pass_on(event)


def _likelihood(rank: _Rank, status: int | None) -> int:
    """Return how likely a failure is to be a consequence of another: the smallest is the cause.

    A lost connection is a consequence. So may be an abort, because libraries abort a process that lost its peers.
    """
    lost_peer = rank.failure is not None and bool(rank.failure.get("lost_peer"))
    if rank.worker.fault:
        return 0
    if rank.failure is None and status is not None and status < 0 and status != -signal.SIGABRT:
        return 1
    return 4 if lost_peer else 3 if rank.failure is None else 2


def _of_rank(event: Event, rank: int) -> Event:
    """Return a failure that names its rank; a wrong result is the gang's."""
    failure = event["failure"]
    if failure["kind"] != "check":
        failure = {**failure, "message": f"rank {rank}: {failure['message']}", "rank": rank}
    return {"of": 0, "failure": failure}


def _where(gang: Sequence[_Rank]) -> tuple[int | None, str]:
    """Return the rank for which the others wait, if it is known, and where all ranks are."""
    silent = [rank.number for rank in gang if not rank.place]
    busy: dict[str, list[int]] = {}
    for rank in gang:
        if rank.place and not rank.waits:
            busy.setdefault(rank.place, []).append(rank.number)
    groups = sorted(busy.items(), key=lambda item: len(item[1]))
    texts = [f"{_ranks(silent)} did not answer"] if silent else []
    texts += [f"{_ranks(ranks)} in {place}" for place, ranks in groups]
    texts += [f"{_ranks(waiting)} waiting"] if (waiting := [rank.number for rank in gang if rank.waits]) else []
    first = silent or next((ranks for _, ranks in groups), [])
    unlike = len(first) == 1 and (bool(silent) or len(groups) == 1 or len(groups[1][1]) > 1 or bool(waiting))
    return first[0] if unlike else None, "; ".join(texts)


def _ranks(numbers: Sequence[int]) -> str:
    return f"rank{'' if len(numbers) == 1 else 's'} {', '.join(map(str, numbers))}"
