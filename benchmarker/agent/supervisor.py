"""The parent's side of a process group: start its ranks, listen until all have ended, and find what failed.

Each rank is a worker with pipes of its own, on this machine or behind the agent of its node. Rank 0 binds a port and
sends its address, which is passed on to the others; from then on the ranks talk to each other (`process_group.py` in
`worker`). If one of them fails, the others usually fail because of it, or wait for it without end: so failures are
gathered for a moment, the likeliest cause is chosen among them (`agent.cause`), and all ranks are ended. Over several
nodes, a rank that has only lost its peer is not believed before all nodes were asked whether they are there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from benchmarker.agent.cause import RankState, ending_of, is_consequence
from benchmarker.agent.node import Node, end_trial, give_up_silent, hear
from benchmarker.agent.remote import AGAIN_S
from benchmarker.worker.launch import GRACE_S, Ending
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
