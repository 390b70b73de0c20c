"""The parent's side of a gang: start the ranks, listen until all have ended, and find what failed.

Each rank is a worker with pipes of its own, on this machine or behind the agent of its node. Rank 0 binds a port and
tells its address, which is passed on to the others; from then on the ranks talk to each other (`process_group.py` in
`worker`). If one of them fails, the others usually fail because of it, or wait for it without end: so failures are
gathered for a moment, the likeliest cause is chosen among them (`agent.cause`), and all ranks are ended. Over several
nodes, a rank that has only lost its peer is not believed before all nodes were asked whether they are there.
"""

from __future__ import annotations

import dataclasses
import time
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from benchmarker.agent.cause import Rank, ending_of, is_consequence
from benchmarker.agent.remote import AGAIN_S, LostNodeError, RemoteRank, give_up_silent, readings_of, sense
from benchmarker.power import samplers
from benchmarker.worker.launch import GRACE_S, Ending, converse, environment_of, started
from benchmarker.worker.pipes import listen
from benchmarker.worker.protocol import Address, Command

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from benchmarker.agent.remote import Agent, Nodes
    from benchmarker.worker.launch import Environment, Event
    from benchmarker.worker.pipes import Child
    from benchmarker.worker.protocol import Task

GATHER_S = 2.0
"""Time after the first failure in which others are heard: the first is seldom the cause."""
LATE_S = 5.0
"""Time after that in which it is known that a rank has ended, by which another one lost its connection."""
PLACES_S = 1.0
"""Time that the ranks are given after the timeout to tell where they are."""


def converse_with_ranks(
    task: Task,
    environment: Environment,
    timeout_s: float,
    logs: Sequence[Path],
    on_event: Callable[[Event], None],
    nodes: Nodes | None = None,
) -> Ending:
    """Run a worker to its end, or a gang, whose ranks have a log each, and pass on what it or rank 0 sends.

    If a rank fails, all are ended within seconds, and the likeliest cause is passed on or is in the ending that is
    returned. However this function ends, even by an interrupt, all ranks and what they started are ended too. Over
    several nodes, each finds its own `environment`, and their machines are passed on too, and for a trial what their
    meters can read; the time of the rest is not that of the worker. Raises LostNodeError if nothing can be started on a
    node that is lost, and `UserError` if the launcher refuses it, or if the software of the nodes differs.
    """
    if len(logs) == 1:
        return converse(task, environment, timeout_s, logs[0], on_event)
    start = time.monotonic()
    tasks = [
        msgspec.structs.replace(task, rank=rank, sensors=task.sensors if rank == 0 else {}) for rank in range(len(logs))
    ]
    gang = [Rank(rank, on_event if rank == 0 else _ignore) for rank in range(len(logs))]
    found: list[Agent] = []
    with ExitStack() as stack:
        children: Sequence[Child]
        if nodes:
            found = stack.enter_context(nodes.agents.on(nodes.names))
        try:
            if nodes:
                start += _prepare(found, nodes, task, on_event)
                children = _start_on_nodes(found, nodes, tasks, logs, gang)
            else:
                children = _start_here(stack, environment, tasks, logs, gang)
        except LostNodeError as error:
            return Ending(None, False, time.monotonic() - start, node=error.node, lost=str(error))
        timed_out, failed = _listen_until_failure(gang, children, start + timeout_s, nodes, found)
    wall_s = time.monotonic() - start
    ending = ending_of(gang, timed_out, failed, wall_s, on_event)
    return dataclasses.replace(ending, readings=readings_of(found, nodes)) if nodes else ending


def _start_here(
    stack: ExitStack,
    environment: Environment,
    tasks: Sequence[Task],
    logs: Sequence[Path],
    gang: Sequence[Rank],
) -> list[Child]:
    """Start all ranks on this machine; returns whom to listen to."""
    children: list[Child] = []
    for rank, task, log in zip(gang, tasks, logs, strict=True):
        shown = environment_of(task.cases[0], rank.number, environment)
        worker = stack.enter_context(started(task, shown, log, partial(_on_event, rank, gang)))
        rank.worker = worker
        children.append(worker)
    return children


def _prepare(found: Sequence[Agent], nodes: Nodes, task: Task, on_event: Callable[[Event], None]) -> float:
    """Pass on the machines and, for a trial, what their meters read; returns their rest, s. Raises LostNodeError."""
    on_event({"part": {"machines": [agent.machine for agent in found]}})
    case = task.cases[0]
    if task.kind != "trial" or len(task.cases) > 1 or not samplers.meters(case.measuring.power):
        return 0.0
    start = time.monotonic()
    on_event({"stage": "rest"})
    sense(found, nodes, case)
    if lost := next((agent for agent in found if agent.lost), None):
        raise LostNodeError(lost.node, lost.lost)
    on_event({"meters": {agent.node: nodes.found[agent.node] for agent in found}})
    rest_s = time.monotonic() - start
    on_event({"took": ["rest", rest_s]})
    return rest_s


def _start_on_nodes(
    found: Sequence[Agent], nodes: Nodes, tasks: Sequence[Task], logs: Sequence[Path], gang: Sequence[Rank]
) -> Sequence[Child]:
    """Start the ranks by the agents of the nodes, each as many; returns whom to listen to."""
    count = len(gang) // len(found)
    peer_address = nodes.other
    for number, agent in enumerate(found):
        mine = slice(number * count, (number + 1) * count)
        for rank in gang[mine]:
            rank.node = agent.node
            rank.worker = RemoteRank(rank.number, agent, partial(_on_event, rank, gang))
        asked = [msgspec.structs.replace(task, peer_address=peer_address) for task in tasks[mine]]
        agent.begin([rank.worker for rank in gang[mine] if isinstance(rank.worker, RemoteRank)], asked, logs[mine])
    return found


def _listen_until_failure(
    gang: Sequence[Rank], children: Sequence[Child], deadline: float, nodes: Nodes | None, found: Sequence[Agent]
) -> tuple[bool, Sequence[Rank]]:
    """Listen until all ranks have ended, one has failed, or time is up; returns whether it is, and who has failed.

    What is left is asked to end.
    """

    def all_ended() -> bool:
        return all(rank.worker.status is not None or rank.worker.lost for rank in gang)

    listen(children, deadline, lambda: all_ended() or any(rank.has_failed() for rank in gang))
    timed_out = not all_ended() and not any(rank.has_failed() for rank in gang)
    if timed_out:
        for rank in gang:
            rank.worker.send(Command(stacks=True))
        listen(children, time.monotonic() + PLACES_S, lambda: all(rank.place for rank in gang))
    elif not all_ended():
        listen(children, min(deadline, time.monotonic() + GATHER_S), lambda: all(rank.has_failed() for rank in gang))
    if nodes and _may_lack_a_node(gang, timed_out):
        _ask_who_is_gone(gang, nodes, found)
        timed_out = timed_out and not any(rank.worker.lost for rank in gang)
    # What follows ends the others, which is no failure of theirs.
    failed = [rank for rank in gang if rank.has_failed()]
    for rank in failed:
        rank.failed_with, rank.lost = rank.worker.status, rank.worker.lost
    if any(rank.worker.status is None for rank in gang):
        for rank in gang:
            rank.worker.terminate()
        listen(children, time.monotonic() + GRACE_S, all_ended)
    return timed_out, failed


def _may_lack_a_node(gang: Sequence[Rank], timed_out: bool) -> bool:
    """Whether a node may be gone: no rank of it has answered, or all failures are that others are gone."""
    if timed_out:
        return {rank.node for rank in gang if rank.place} != {rank.node for rank in gang}
    failed = [rank for rank in gang if rank.has_failed()]
    return bool(failed) and all(is_consequence(rank) for rank in failed)


def _ask_who_is_gone(gang: Sequence[Rank], nodes: Nodes, found: Sequence[Agent]) -> None:
    """Ask all agents whether they are there, and then the launcher; a cause that is heard meanwhile is enough."""

    def is_told() -> bool:
        return any(rank.has_failed() and not is_consequence(rank) for rank in gang)

    for agent in found:
        agent.ask()
    start = time.monotonic()
    listen(found, start + LATE_S, is_told)
    listen(found, start + AGAIN_S, lambda: is_told() or all(agent.has_answered or agent.trouble for agent in found))
    if not is_told():
        give_up_silent(found, AGAIN_S, lambda agent: agent.has_answered)
    if not is_told():
        for agent in found:
            agent.ask()  # what the launcher takes to answer is no time in which they hear nothing
        down = nodes.agents.down()
        for agent in found:
            if agent.node in down:
                agent.given_up = "is on a node that the launcher says is down"


def _ignore(event: Event) -> None:
    """Pass on nothing."""


def _on_event(rank: Rank, gang: Sequence[Rank], event: Event) -> None:
    """Process an event of a rank."""
    rank.done = rank.done or "done" in event
    if "failure" in event:
        rank.failure = rank.failure or event
    elif "place" in event:
        rank.place, rank.waits, rank.synchronizes = event["place"], event["waits"], event["synchronizes"]
    elif "address" in event:
        address = msgspec.convert(event["address"], Address)
        for other in gang[1:]:
            other.worker.send(Command(address=address))
    else:
        rank.pass_on(event)
