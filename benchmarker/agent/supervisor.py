"""The parent's side of a process group: start its ranks, listen until all have ended, and find what failed.

Each rank is a worker with pipes of its own, on this machine or behind the agent of its node. Rank 0 binds a port and
sends its address, which is passed on to the others; from then on the ranks talk to each other (`process_group.py` in
`worker`). If one of them fails, the others usually fail because of it, or wait for it without end: so failures are
gathered for a moment, the likeliest cause is chosen among them, and all ranks are ended. Over several
nodes, a rank that has only lost its peer is not believed before all nodes were asked whether they are there.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from benchmarker.agent.node import Node, RankProcess, end_trial, give_up_silent, hear
from benchmarker.agent.remote import AGAIN_S
from benchmarker.worker.launch import GRACE_S, Ending, rank_text
from benchmarker.worker.protocol import Command, Done, Event, Failed, Listening, Position, Task

GATHER_S = 2.0
"""Time after the first failure in which others are noted: the first is seldom the cause."""
LATE_S = 5.0
"""Time after that in which it is known that a rank has ended, by which another one lost its connection."""
PLACES_S = 1.0
"""Time that the ranks are given after the timeout to send where they are."""


def run_group(
    nodes: Sequence[Node],
    task: Task,
    timeout_s: float,
    logs: Sequence[Path],
    on_event: Callable[[Event], None],
    down: Callable[[], Sequence[str]] = tuple,
) -> Ending:
    """Run the ranks of a group to their ends, each with its log, and pass on what rank 0 sends.

    Each node has as many of them. If a rank fails, all are ended within seconds, and the likeliest cause is passed on
    or is in the ending that is returned. `down` returns the nodes that the launcher knows to be lost.
    """
    start = time.monotonic()
    ranks = [RankState(rank, on_event if rank == 0 else _ignore) for rank in range(len(logs))]
    count = len(ranks) // len(nodes)
    peer_address = nodes[-1].address if len(nodes) > 1 else ""
    for number, node in enumerate(nodes):
        mine = slice(number * count, (number + 1) * count)
        tasks = [msgspec.structs.replace(task, rank=rank.number, peer_address=peer_address) for rank in ranks[mine]]
        workers = node.start(tasks, logs[mine], lambda rank, event: _on_event(ranks[rank], ranks, event))
        for rank, worker in zip(ranks[mine], workers, strict=True):
            rank.node, rank.worker = node.name or None, worker
    timed_out, failed = _listen_until_failure(ranks, nodes, start + timeout_s, down)
    end_trial(nodes)
    return ending_of(ranks, timed_out, failed, time.monotonic() - start, on_event)


def _listen_until_failure(
    ranks: Sequence[RankState], nodes: Sequence[Node], deadline: float, down: Callable[[], Sequence[str]]
) -> tuple[bool, Sequence[RankState]]:
    """Listen until all ranks have ended, one has failed, or time is up; returns whether it is, and who has failed.

    What is left is asked to end.
    """

    def all_ended() -> bool:
        return all(rank.worker.status is not None or rank.worker.lost for rank in ranks)

    hear(nodes, deadline, lambda: all_ended() or any(rank.has_failed() for rank in ranks))
    timed_out = not all_ended() and not any(rank.has_failed() for rank in ranks)
    if timed_out and len(ranks) > 1:
        for rank in ranks:
            rank.worker.send(Command(stacks=True))
        hear(nodes, time.monotonic() + PLACES_S, lambda: all(rank.place for rank in ranks))
    elif not timed_out and not all_ended():
        until = min(deadline, time.monotonic() + GATHER_S)
        hear(nodes, until, lambda: all(rank.has_failed() and rank.is_over for rank in ranks))
    if len(nodes) > 1 and _may_lack_a_node(ranks, timed_out):
        _find_lost_nodes(ranks, nodes, down)
        timed_out = timed_out and not any(rank.worker.lost for rank in ranks)
    # What follows ends the others, which is no failure of theirs.
    failed = [rank for rank in ranks if rank.has_failed()]
    for rank in failed:
        rank.failed_with, rank.lost = rank.worker.status, rank.worker.lost
    if any(rank.worker.status is None for rank in ranks):
        for rank in ranks:
            rank.worker.terminate()
        hear(nodes, time.monotonic() + GRACE_S, all_ended)
    return timed_out, failed


def _may_lack_a_node(ranks: Sequence[RankState], timed_out: bool) -> bool:
    """Whether a node may be gone: no rank of it has answered, or all failures are that others are gone."""
    if timed_out:
        return {rank.node for rank in ranks if rank.place} != {rank.node for rank in ranks}
    failed = [rank for rank in ranks if rank.has_failed()]
    return bool(failed) and all(is_consequence(rank) for rank in failed)


def _find_lost_nodes(ranks: Sequence[RankState], nodes: Sequence[Node], down: Callable[[], Sequence[str]]) -> None:
    """Ask all nodes whether they are there, and then the launcher; a cause that is reported meanwhile is enough."""

    def is_known() -> bool:
        return any(rank.has_failed() and not is_consequence(rank) for rank in ranks)

    for node in nodes:
        node.ping()
    start = time.monotonic()
    hear(nodes, start + LATE_S, is_known)
    hear(nodes, start + AGAIN_S, lambda: is_known() or all(node.has_answered or node.trouble for node in nodes))
    if not is_known():
        give_up_silent(nodes, AGAIN_S, lambda node: node.has_answered)
    if not is_known():
        for node in nodes:
            node.ping()  # what the launcher takes to answer must not seem to them as if they were forgotten
        lost = down()
        for node in nodes:
            if node.name in lost:
                node.given_up = "is on a node that the launcher says is down"


def _ignore(event: Event) -> None:
    """Pass on nothing."""


def _on_event(rank: RankState, ranks: Sequence[RankState], event: Event) -> None:
    """Process an event of a rank."""
    rank.done = rank.done or isinstance(event, Done)
    if isinstance(event, Failed):
        rank.failure = rank.failure or event
    elif isinstance(event, Position):
        rank.place, rank.waits, rank.synchronizes = event.place, event.waits, event.synchronizes
    elif isinstance(event, Listening):
        for other in ranks[1:]:
            other.worker.send(Command(address=event.address))
    else:
        rank.pass_on(event)


class RankState:
    """What is known about a rank: its worker, whether it is done, its failure, where it is, and on which node."""

    worker: RankProcess

    def __init__(self, number: int, pass_on: Callable[[Event], None]) -> None:
        self.number = number
        self.pass_on = pass_on
        self.done = False
        self.failure: Failed | None = None
        self.failed_s = math.inf
        self.place = ""
        self.waits = False
        self.synchronizes = False
        self.node: str | None = None
        self.failed_with: int | None = None
        self.lost = ""

    @property
    def is_over(self) -> bool:
        """Whether it has ended, or will never be heard to."""
        return self.worker.status is not None or bool(self.worker.lost or self.worker.fault)

    def has_failed(self) -> bool:
        """Whether it sent a failure or what is not valid, or ended or was lost before it was done; notes when."""
        over = not self.done and (self.worker.status is not None or bool(self.worker.lost))
        has_failed = self.failure is not None or bool(self.worker.fault) or over
        if has_failed:
            self.failed_s = min(self.failed_s, time.monotonic())
        return has_failed


def ending_of(
    ranks: Sequence[RankState],
    timed_out: bool,
    failed: Sequence[RankState],
    wall_s: float,
    on_event: Callable[[Event], None],
) -> Ending:
    """Return how ranks ended, with the likeliest cause of a failure; passes on its event if there is one."""
    if len(ranks) == 1:
        (rank,) = ranks
        if rank.failure is not None and not timed_out:
            on_event(rank.failure)
        return Ending(rank.worker.status, timed_out, wall_s, rank.worker.fault)
    if timed_out:
        stuck, where = _where(ranks)
        rank = ranks[stuck or 0]
        node = None if stuck is None else rank.node
        return Ending(rank.worker.status, True, wall_s, rank=stuck, where=where, node=node)
    if not failed:
        return Ending(0, False, wall_s)
    cause = min(failed, key=lambda rank: (_likelihood(rank), rank.failed_s))
    if cause.failure is not None and not cause.lost:
        on_event(_of_rank(cause.failure, cause))
    status = cause.worker.status if cause.failed_with is None else cause.failed_with
    return Ending(status, False, wall_s, cause.worker.fault, cause.number, node=cause.node, lost=cause.lost)


def is_consequence(rank: RankState) -> bool:
    """Whether a failure only shows that another rank is gone.

    That is a lost connection, or an abort: libraries abort a process that lost its peers.
    """
    if rank.worker.fault or rank.worker.lost:
        return False
    return rank.worker.status == -signal.SIGABRT if rank.failure is None else rank.failure.lost_peer


def _likelihood(rank: RankState) -> int:
    """Return how likely a failure is to be a consequence of another: the smallest is the cause."""
    status = rank.failed_with
    if rank.worker.fault or rank.lost:
        return 0
    if rank.failure is None:
        return 1 if status is not None and status < 0 and status != -signal.SIGABRT else 3
    return 4 if rank.failure.lost_peer else 2


def _of_rank(event: Failed, rank: RankState) -> Failed:
    """Return a failure that names its rank; a wrong result is that of all."""
    failure = event.failure
    if failure.kind != "check":
        message = f"{rank_text(rank.number, rank.node)}: {failure.message}"
        failure = msgspec.structs.replace(failure, message=message, rank=rank.number, node=rank.node)
    return Failed(failure)


def _where(ranks: Sequence[RankState]) -> tuple[int | None, str]:
    """Return the rank for which the others wait, if it is known, and where all ranks are.

    A rank that synchronizes may itself be slow, or wait within an exchange for one that does not.
    """
    silent = [rank for rank in ranks if not rank.place]
    busy: dict[tuple[bool, str], list[RankState]] = {}
    for rank in ranks:
        if rank.place and not rank.waits:
            busy.setdefault((rank.synchronizes, rank.place), []).append(rank)
    groups = sorted(busy.items(), key=lambda item: (item[0][0], len(item[1])))
    texts = [f"{_ranks(silent)} did not answer"] if silent else []
    texts += [f"{_ranks(busy_ranks)} in {place}" for (_, place), busy_ranks in groups]
    texts += [f"{_ranks(waiting)} waiting"] if (waiting := [rank for rank in ranks if rank.waits]) else []
    first = silent or next((busy_ranks for _, busy_ranks in groups), [])
    alone = bool(silent) or len(groups) == 1 or bool(waiting)
    unlike = alone or (len(groups) > 1 and (groups[0][0][0] < groups[1][0][0] or len(groups[1][1]) > 1))
    return first[0].number if len(first) == 1 and unlike else None, "; ".join(texts)


def _ranks(ranks: Sequence[RankState]) -> str:
    if len(ranks) == 1:
        return rank_text(ranks[0].number, ranks[0].node)
    return f"ranks {', '.join(str(rank.number) for rank in ranks)}"
